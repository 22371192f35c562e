// One decoder layer of Qwen3, forward and backward, on a rank's rows.
#pragma once

#include "kernels/device.h"
#include "parallel/ring_attention.h"
#include "runtime/batch.h"
#include "runtime/memory_rule.h"
#include "runtime/model/units.h"
#include "runtime/model_config.h"

namespace annulus {

// What a layer keeps from forward to backward under any rule.
struct LayerKept {
  Tensor input;     // (rows, hidden): the residual stream as it enters
  Tensor attended;  // (rows, heads, head_dim), unless it is computed again
  Tensor log_sum;   // (rows, heads) float32, likewise

  LayerKept(Device& device, const ModelConfig& model, int64_t rows, DType dtype, const MemoryRule& rule);
};

// What forward needs on its way, and backward too: kept by each layer, or computed again. Each tensor is there from
// where it is first written until after its last use.
struct LayerWork {
  Tensor input_rstd;     // (rows) float32
  Tensor query_raw;      // (rows, heads, head_dim): before norm and rotation
  Tensor key_raw;        // (rows, kv_heads, head_dim)
  Tensor query_rstd;     // (rows, heads) float32
  Tensor key_rstd;       // (rows, kv_heads) float32
  Tensor query;          // (rows, heads, head_dim)
  Tensor key;            // (rows, kv_heads, head_dim)
  Tensor value;          // (rows, kv_heads, head_dim)
  Tensor attended;       // (rows, heads, head_dim), where LayerKept has none
  Tensor log_sum;        // (rows, heads) float32, likewise
  Tensor middle;         // (rows, hidden): the residual stream between attention and MLP
  Tensor middle_rstd;    // (rows) float32
  Tensor middle_normed;  // (rows, hidden)
  Tensor gate_up;        // (mlp_rows, 2 · intermediate)
  Tensor activated;      // (mlp_rows, intermediate)
};

class DecoderLayer {
 public:
  DecoderLayer(const ModelConfig& model, Device& device, RingAttention& attention, const MemoryRule& rule)
      : model_(model), device_(device), attention_(attention), rule_(rule) {}

  // From kept.input to output (rows, hidden), filling the rest of `kept` and, where the rule keeps it, `work`.
  void forward(const View& output, const LayerKept& kept, LayerWork& work, const LayerParameters& weights,
               const MicroBatch& batch, const LocalMask& mask, Stream stream) const;

  // Fills `work` as forward did, up to the MLP, from what was kept.
  void recompute(const LayerKept& kept, LayerWork& work, const LayerParameters& weights, const MicroBatch& batch,
                 const LocalMask& mask, Stream stream) const;

  // `residual_gradient` (rows, hidden) is that of forward's output and becomes that of its input; `gradients` are added
  // to. `work` is used up.
  void backward(const View& residual_gradient, const LayerKept& kept, LayerWork& work, const LayerParameters& weights,
                const LayerParameters& gradients, const MicroBatch& batch, const LocalMask& mask, Stream stream) const;

 private:
  void take_attention_work(LayerWork& work, const View& input) const;
  void take_mlp_work(LayerWork& work, const View& input) const;
  void project(const LayerKept& kept, LayerWork& work, const LayerParameters& weights, const MicroBatch& batch,
               Stream stream) const;
  [[nodiscard]] Tensor normed_input(const LayerKept& kept, LayerWork& work, const LayerParameters& weights,
                                    Stream stream) const;
  void attend(const LayerKept& kept, LayerWork& work, const LocalMask& mask, Stream stream) const;
  void leave_attention(const LayerKept& kept, LayerWork& work, const LayerParameters& weights, Stream stream) const;
  void mlp_inside(LayerWork& work, const LayerParameters& weights, int64_t begin, int64_t end, Stream stream) const;
  void mlp_backward(const View& residual_gradient, LayerWork& work, const LayerParameters& weights,
                    const LayerParameters& gradients, Stream stream) const;
  void attention_backward(const View& residual_gradient, const LayerKept& kept, LayerWork& work,
                          const LayerParameters& weights, const LayerParameters& gradients, const MicroBatch& batch,
                          const LocalMask& mask, Stream stream) const;

  [[nodiscard]] View attended(const LayerKept& kept, const LayerWork& work) const;
  [[nodiscard]] View log_sum(const LayerKept& kept, const LayerWork& work) const;
  [[nodiscard]] int64_t mlp_rows(int64_t rows) const;
  [[nodiscard]] float eps() const { return static_cast<float>(model_.rms_norm_eps); }
  [[nodiscard]] float attention_scale() const;

  const ModelConfig& model_;
  Device& device_;
  RingAttention& attention_;
  MemoryRule rule_;
};

}  // namespace annulus
