#include "runtime/model/decoder.h"

#include "runtime/model/head.h"

namespace annulus {
namespace {

// A unit's gathered weights for as long as this lives; the unit that comes next is gathered meanwhile.
class UnitInUse {
 public:
  UnitInUse(ShardedParameters& parameters, size_t unit, size_t next, Stream stream)
      : parameters_(parameters), unit_(unit), flat_(parameters.weights(unit, stream)) {
    parameters.prefetch(next, stream);
  }
  UnitInUse(const UnitInUse&) = delete;
  UnitInUse& operator=(const UnitInUse&) = delete;
  ~UnitInUse() { parameters_.drop(unit_); }

  [[nodiscard]] View parameter(size_t index) const { return parameters_.units()[unit_].view(flat_, index); }
  [[nodiscard]] LayerParameters layer() const { return {parameters_.units()[unit_], flat_}; }

 private:
  ShardedParameters& parameters_;
  size_t unit_;
  View flat_;
};

}  // namespace

const LocalMask& Decoder::mask(const MicroBatch& batch, int64_t layer) const {
  return batch.masks.at(model_.layer_windows[static_cast<size_t>(layer)]);
}

void Decoder::forward_backward(const MicroBatch& batch, const View& loss, Stream stream,
                               const std::function<void()>& backward_begins) {
  const int64_t rows = batch.tokens->rows();
  const Shape hidden{rows, model_.hidden};
  LayerCheckpoints kept(device_, model_, rows, dtype_, rule_, checkpoint_storage_);
  Work work(static_cast<size_t>(model_.layers));
  Tensor output = device_.allocate(hidden, dtype_, Purpose::checkpoints);
  forward(batch, kept, work, output, stream);
  backward_begins();
  const Tensor gradient = device_.allocate(hidden, dtype_, Purpose::checkpoints);
  head(batch, output, gradient, loss, stream);
  output = {};
  backward(batch, kept, work, gradient, stream);
}

void Decoder::forward(const MicroBatch& batch, LayerCheckpoints& kept, Work& work, const View& output, Stream stream) {
  {
    const UnitInUse embedding(parameters_, embedding_unit(), layer_unit(0), stream);
    device_.embedding_forward(kept.open(0).input, embedding.parameter(0), batch.tokens, stream);
  }
  for (int64_t layer = 0; layer < model_.layers; ++layer) {
    const UnitInUse unit(parameters_, layer_unit(layer), layer_unit(layer + 1), stream);  // after the last: the head
    const View next = layer + 1 == model_.layers ? output : kept.open(layer + 1).input.view();
    LayerWork& layer_work = work[static_cast<size_t>(layer)];
    layer_.forward(next, kept.open(layer), layer_work, unit.layer(), batch, mask(batch, layer), stream);
    if (!rule_.keeps_work()) layer_work = {};
    kept.close(layer, stream);
  }
}

// A tied head is one more use of the embedding's unit, with a gradient of its own.
void Decoder::head(const MicroBatch& batch, const View& output, const View& gradient, const View& loss, Stream stream) {
  const size_t head = head_unit(model_);
  const size_t last_layer = layer_unit(model_.layers - 1);
  const UnitInUse norm(parameters_, head, model_.tied ? embedding_unit() : last_layer, stream);
  const ParameterUnit& head_layout = parameters_.units()[head];
  if (!model_.tied) {
    const View flat = parameters_.gradient(head, stream);
    head_loss(device_, model_, output, gradient, {norm.parameter(0), norm.parameter(1)},
              {head_layout.view(flat, 0), head_layout.view(flat, 1)}, batch, rule_.logits_rows, loss, stream);
    parameters_.reduce(head, stream);
    return;
  }
  const UnitInUse embedding(parameters_, embedding_unit(), last_layer, stream);
  const View norm_gradient = parameters_.gradient(head, stream);
  const View embedding_gradient = parameters_.gradient(embedding_unit(), stream);
  head_loss(device_, model_, output, gradient, {norm.parameter(0), embedding.parameter(0)},
            {head_layout.view(norm_gradient, 0), parameters_.units()[embedding_unit()].view(embedding_gradient, 0)},
            batch, rule_.logits_rows, loss, stream);
  parameters_.reduce(head, stream);
  parameters_.reduce(embedding_unit(), stream);
}

void Decoder::backward(const MicroBatch& batch, LayerCheckpoints& kept, Work& work, const View& gradient,
                       Stream stream) {
  for (int64_t layer = model_.layers - 1; layer >= 0; --layer) {
    const size_t unit = layer_unit(layer);
    {
      const UnitInUse weights(parameters_, unit, layer > 0 ? unit - 1 : unit, stream);
      const LayerKept& layer_kept = kept.fetch(layer, stream);
      LayerWork& layer_work = work[static_cast<size_t>(layer)];
      const LocalMask& layer_mask = mask(batch, layer);
      if (!rule_.keeps_work()) layer_.recompute(layer_kept, layer_work, weights.layer(), batch, layer_mask, stream);
      const LayerParameters gradients(parameters_.units()[unit], parameters_.gradient(unit, stream));
      layer_.backward(gradient, layer_kept, layer_work, weights.layer(), gradients, batch, layer_mask, stream);
      layer_work = {};
    }
    parameters_.reduce(unit, stream);
    kept.drop(layer);
  }
  const View table = parameters_.units()[embedding_unit()].view(parameters_.gradient(embedding_unit(), stream), 0);
  device_.embedding_backward(table, gradient, batch.tokens, stream);
  parameters_.reduce(embedding_unit(), stream);
}

}  // namespace annulus
