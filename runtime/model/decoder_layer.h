// One decoder layer of Qwen3, forward and backward, on a rank's rows.
#pragma once

#include "kernels/device.h"
#include "parallel/ring_attention.h"
#include "runtime/batch.h"
#include "runtime/model/units.h"
#include "runtime/model_config.h"

namespace annulus {

// What forward keeps for backward; rows are the rank's.
struct LayerActivations {
  Tensor input;          // (rows, hidden): the residual stream as it enters
  Tensor input_rstd;     // (rows) float32
  Tensor normed;         // (rows, hidden)
  Tensor query_raw;      // (rows, heads, head_dim): before norm and rotation
  Tensor key_raw;        // (rows, kv_heads, head_dim)
  Tensor query_rstd;     // (rows, heads) float32
  Tensor key_rstd;       // (rows, kv_heads) float32
  Tensor query;          // (rows, heads, head_dim)
  Tensor key;            // (rows, kv_heads, head_dim)
  Tensor value;          // (rows, kv_heads, head_dim)
  Tensor attended;       // (rows, heads, head_dim)
  Tensor log_sum;        // (rows, heads) float32
  Tensor middle;         // (rows, hidden): the residual stream between attention and MLP
  Tensor middle_rstd;    // (rows) float32
  Tensor middle_normed;  // (rows, hidden)
  Tensor gate_up;        // (rows, 2 · intermediate)
  Tensor activated;      // (rows, intermediate)

  LayerActivations(Device& device, const ModelConfig& model, int64_t rows, DType dtype);
};

class DecoderLayer {
 public:
  DecoderLayer(const ModelConfig& model, Device& device, RingAttention& attention)
      : model_(model), device_(device), attention_(attention) {}

  // From kept.input to output (rows, hidden), filling the rest of `kept`.
  void forward(const View& output, LayerActivations& kept, const LayerParameters& weights, const MicroBatch& batch,
               const LocalMask& mask, Stream stream) const;

  // `residual_gradient` (rows, hidden) is that of forward's output and becomes that of its input; `gradients` are added
  // to. kept.gate_up is used up.
  void backward(const View& residual_gradient, const LayerActivations& kept, const LayerParameters& weights,
                const LayerParameters& gradients, const MicroBatch& batch, const LocalMask& mask, Stream stream) const;

 private:
  void mlp_backward(const View& residual_gradient, const LayerActivations& kept, const LayerParameters& weights,
                    const LayerParameters& gradients, Stream stream) const;
  void attention_backward(const View& residual_gradient, const LayerActivations& kept, const LayerParameters& weights,
                          const LayerParameters& gradients, const MicroBatch& batch, const LocalMask& mask,
                          Stream stream) const;
  [[nodiscard]] float eps() const { return static_cast<float>(model_.rms_norm_eps); }
  [[nodiscard]] float attention_scale() const;

  const ModelConfig& model_;
  Device& device_;
  RingAttention& attention_;
};

}  // namespace annulus
