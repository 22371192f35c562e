// The whole decoder on a rank's rows: one micro-batch from tokens to gradients in the shards.
#pragma once

#include <functional>
#include <vector>

#include "kernels/device.h"
#include "parallel/sharded_parameters.h"
#include "runtime/batch.h"
#include "runtime/model/decoder_layer.h"
#include "runtime/model/layer_checkpoints.h"
#include "runtime/model_config.h"

namespace annulus {

class Decoder {
 public:
  Decoder(const ModelConfig& model, Device& device, RingAttention& attention, ShardedParameters& parameters,
          DType dtype, const MemoryRule& rule)
      : model_(model),
        device_(device),
        parameters_(parameters),
        layer_(model, device, attention, rule),
        dtype_(dtype),
        rule_(rule),
        checkpoint_storage_(device, rule.checkpoints) {}

  // Adds the sum of the rows' losses to `loss` (1) float64 and its gradient to the shards. `backward_begins` is called
  // between the two halves.
  void forward_backward(const MicroBatch& batch, const View& loss, Stream stream,
                        const std::function<void()>& backward_begins);

 private:
  using Work = std::vector<LayerWork>;  // by layer; unless the rule keeps it, only the layer at work has any

  void forward(const MicroBatch& batch, LayerCheckpoints& kept, Work& work, const View& output, Stream stream);
  void head(const MicroBatch& batch, const View& output, const View& gradient, const View& loss, Stream stream);
  void backward(const MicroBatch& batch, LayerCheckpoints& kept, Work& work, const View& gradient, Stream stream);
  [[nodiscard]] const LocalMask& mask(const MicroBatch& batch, int64_t layer) const;

  const ModelConfig& model_;
  Device& device_;
  ShardedParameters& parameters_;
  DecoderLayer layer_;
  DType dtype_;
  MemoryRule rule_;
  CheckpointStorage checkpoint_storage_;
};

}  // namespace annulus
