#include "runtime/model/layer_checkpoints.h"

#include "kernels/narrow.h"

namespace annulus {
namespace {

// Calls `f` with every tensor that is kept and where it begins in the layer's bytes; returns how many there are.
template <class F>
int64_t for_each_tensor(const LayerKept& kept, F&& f) {
  int64_t begin = 0;
  for (const View& tensor : {kept.input.view(), kept.attended.view(), kept.log_sum.view()}) {
    if (tensor.empty()) continue;
    f(tensor, begin);
    begin += round_up(tensor.bytes(), memory_alignment);
  }
  return begin;
}

}  // namespace

void CheckpointStorage::reserve(int64_t layers, int64_t bytes) {
  storage_ = &device_.storage(place_);
  while (static_cast<int64_t>(offsets_.size()) < layers) offsets_.push_back(storage_->reserve(bytes));
}

std::vector<Transfer> CheckpointStorage::store(int64_t layer, const LayerKept& kept, Stream stream) const {
  std::vector<Transfer> transfers;
  for_each_tensor(kept, [&](const View& tensor, int64_t begin) {
    transfers.push_back(storage_->store(offsets_[static_cast<size_t>(layer)] + begin, tensor, stream));
  });
  return transfers;
}

std::vector<Transfer> CheckpointStorage::load(const LayerKept& kept, int64_t layer, Stream stream) const {
  std::vector<Transfer> transfers;
  for_each_tensor(kept, [&](const View& tensor, int64_t begin) {
    transfers.push_back(storage_->load(tensor, offsets_[static_cast<size_t>(layer)] + begin, stream));
  });
  return transfers;
}

void LayerCheckpoints::Layer::wait(Stream stream) {
  for (Transfer& transfer : transfers) transfer.wait(stream);
  transfers.clear();
}

LayerCheckpoints::LayerCheckpoints(Device& device, const ModelConfig& model, int64_t rows, DType dtype,
                                   const MemoryRule& rule, CheckpointStorage& storage)
    : device_(device),
      model_(model),
      rows_(rows),
      dtype_(dtype),
      rule_(rule),
      storage_(storage),
      layers_(static_cast<size_t>(model.layers)) {}

const LayerKept& LayerCheckpoints::open(int64_t layer) {
  Layer& opened = layers_[static_cast<size_t>(layer)];
  if (!opened.kept) opened.kept.emplace(device_, model_, rows_, dtype_, rule_);
  return *opened.kept;
}

// The last layer stays: backward begins with it. One layer is being written while the next one computes.
void LayerCheckpoints::close(int64_t layer, Stream stream) {
  if (!storage_.used()) return;
  if (layer > 0) {
    Layer& before = layers_[static_cast<size_t>(layer) - 1];
    before.wait(stream);
    before.kept.reset();
  }
  if (layer + 1 == model_.layers) return;
  Layer& closed = layers_[static_cast<size_t>(layer)];
  storage_.reserve(model_.layers - 1, for_each_tensor(*closed.kept, [](const View&, int64_t) {}));
  closed.transfers = storage_.store(layer, *closed.kept, stream);
}

void LayerCheckpoints::load(int64_t layer, Stream stream) {
  const LayerKept& kept = open(layer);
  layers_[static_cast<size_t>(layer)].transfers = storage_.load(kept, layer, stream);
}

const LayerKept& LayerCheckpoints::fetch(int64_t layer, Stream stream) {
  Layer& fetched = layers_[static_cast<size_t>(layer)];
  fetched.wait(stream);
  if (storage_.used() && layer > 0) load(layer - 1, stream);
  return *fetched.kept;
}

void LayerCheckpoints::drop(int64_t layer) {
  layers_[static_cast<size_t>(layer)].kept.reset();
}

}  // namespace annulus
