#include "runtime/model/decoder_layer.h"

#include <cmath>

#include "runtime/model/linear.h"

namespace annulus {

LayerActivations::LayerActivations(Device& device, const ModelConfig& m, int64_t rows, DType dtype) {
  const auto keep = [&](const Shape& shape, DType type, Purpose purpose) {
    return device.allocate(shape, type, purpose);
  };
  const Shape hidden{rows, m.hidden}, per_row{rows};
  const Shape queries{rows, m.heads, m.head_dim}, keys{rows, m.kv_heads, m.head_dim};
  input = keep(hidden, dtype, Purpose::checkpoints);
  input_rstd = keep(per_row, DType::float32, Purpose::attention);
  normed = keep(hidden, dtype, Purpose::attention);
  query_raw = keep(queries, dtype, Purpose::attention);
  key_raw = keep(keys, dtype, Purpose::attention);
  query_rstd = keep({rows, m.heads}, DType::float32, Purpose::attention);
  key_rstd = keep({rows, m.kv_heads}, DType::float32, Purpose::attention);
  query = keep(queries, dtype, Purpose::attention);
  key = keep(keys, dtype, Purpose::attention);
  value = keep(keys, dtype, Purpose::attention);
  attended = keep(queries, dtype, Purpose::attention);
  log_sum = keep({rows, m.heads}, DType::float32, Purpose::attention);
  middle = keep(hidden, dtype, Purpose::mlp);
  middle_rstd = keep(per_row, DType::float32, Purpose::mlp);
  middle_normed = keep(hidden, dtype, Purpose::mlp);
  gate_up = keep({rows, 2 * m.intermediate}, dtype, Purpose::mlp);
  activated = keep({rows, m.intermediate}, dtype, Purpose::mlp);
}

float DecoderLayer::attention_scale() const {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(model_.head_dim)));
}

void DecoderLayer::forward(const View& output, LayerActivations& kept, const LayerParameters& weights,
                           const MicroBatch& batch, const LocalMask& mask, Stream stream) const {
  // 1. Normalise.
  device_.rms_norm_forward(
      {.output = kept.normed, .rstd = kept.input_rstd, .input = kept.input, .weight = weights.input_norm, .eps = eps()},
      stream);
  // 2. Queries, keys and values.
  linear(device_, kept.query_raw, kept.normed, weights.query, false, stream);
  linear(device_, kept.key_raw, kept.normed, weights.key, false, stream);
  linear(device_, kept.value, kept.normed, weights.value, false, stream);
  // 3. Normalise and rotate each head.
  device_.head_norm_rotary_forward({.output = kept.query,
                                    .rstd = kept.query_rstd,
                                    .input = kept.query_raw,
                                    .weight = weights.query_norm,
                                    .cosine = batch.cosine,
                                    .sine = batch.sine,
                                    .eps = eps()},
                                   stream);
  device_.head_norm_rotary_forward({.output = kept.key,
                                    .rstd = kept.key_rstd,
                                    .input = kept.key_raw,
                                    .weight = weights.key_norm,
                                    .cosine = batch.cosine,
                                    .sine = batch.sine,
                                    .eps = eps()},
                                   stream);
  // 4. Attend, around the ring.
  attention_.forward({.query = kept.query,
                      .key = kept.key,
                      .value = kept.value,
                      .scale = attention_scale(),
                      .output = kept.attended,
                      .log_sum = kept.log_sum},
                     mask, stream);
  // 5. Back into the residual stream.
  device_.copy(kept.middle, kept.input, stream);
  linear(device_, kept.middle, kept.attended, weights.output, true, stream);
  // 6. The gated MLP, likewise.
  device_.rms_norm_forward({.output = kept.middle_normed,
                            .rstd = kept.middle_rstd,
                            .input = kept.middle,
                            .weight = weights.mlp_norm,
                            .eps = eps()},
                           stream);
  linear(device_, kept.gate_up, kept.middle_normed, weights.gate_up, false, stream);
  device_.swiglu_forward(kept.activated, kept.gate_up, stream);
  device_.copy(output, kept.middle, stream);
  linear(device_, output, kept.activated, weights.down, true, stream);
}

void DecoderLayer::backward(const View& residual_gradient, const LayerActivations& kept, const LayerParameters& weights,
                            const LayerParameters& gradients, const MicroBatch& batch, const LocalMask& mask,
                            Stream stream) const {
  mlp_backward(residual_gradient, kept, weights, gradients, stream);
  attention_backward(residual_gradient, kept, weights, gradients, batch, mask, stream);
}

void DecoderLayer::mlp_backward(const View& residual_gradient, const LayerActivations& kept,
                                const LayerParameters& weights, const LayerParameters& gradients, Stream stream) const {
  const Tensor activated_gradient = device_.allocate(kept.activated->shape(), residual_gradient.dtype(), Purpose::mlp);
  linear_weight_gradient(device_, gradients.down, residual_gradient, kept.activated, stream);
  linear_input_gradient(device_, activated_gradient, residual_gradient, weights.down, false, stream);
  const View gate_up_gradient = kept.gate_up;  // in place: nobody needs the values after this
  device_.swiglu_backward(gate_up_gradient, activated_gradient, kept.gate_up, stream);
  const Tensor normed_gradient = device_.allocate(residual_gradient.shape(), residual_gradient.dtype(), Purpose::mlp);
  linear_weight_gradient(device_, gradients.gate_up, gate_up_gradient, kept.middle_normed, stream);
  linear_input_gradient(device_, normed_gradient, gate_up_gradient, weights.gate_up, false, stream);
  device_.rms_norm_backward({.input_gradient = residual_gradient,
                             .weight_gradient = gradients.mlp_norm,
                             .output_gradient = normed_gradient,
                             .input = kept.middle,
                             .rstd = kept.middle_rstd,
                             .weight = weights.mlp_norm},
                            stream);
}

void DecoderLayer::attention_backward(const View& residual_gradient, const LayerActivations& kept,
                                      const LayerParameters& weights, const LayerParameters& gradients,
                                      const MicroBatch& batch, const LocalMask& mask, Stream stream) const {
  const DType dtype = residual_gradient.dtype();
  const Shape& queries = kept.query->shape();
  const Shape& keys = kept.key->shape();
  const auto room = [&](const Shape& shape, DType type) { return device_.allocate(shape, type, Purpose::attention); };

  // 5. The residual branch: gradient of what attention gave.
  const Tensor attended_gradient = room(queries, dtype);
  linear_weight_gradient(device_, gradients.output, residual_gradient, kept.attended, stream);
  linear_input_gradient(device_, attended_gradient, residual_gradient, weights.output, false, stream);
  // 4. Around the ring again.
  const Tensor query_gradient = room(queries, DType::float32);
  const Tensor key_gradient = room(keys, DType::float32);
  const Tensor value_gradient = room(keys, DType::float32);
  attention_.backward({.query = kept.query,
                       .key = kept.key,
                       .value = kept.value,
                       .scale = attention_scale(),
                       .output = kept.attended,
                       .log_sum = kept.log_sum,
                       .output_gradient = attended_gradient,
                       .query_gradient = query_gradient,
                       .key_gradient = key_gradient,
                       .value_gradient = value_gradient},
                      mask, stream);
  // 3. Through rotation and head norms, rounded once on the way out.
  const Tensor query_raw_gradient = room(queries, dtype);
  const Tensor key_raw_gradient = room(keys, dtype);
  const Tensor value_raw_gradient = room(keys, dtype);
  device_.head_norm_rotary_backward({.input_gradient = query_raw_gradient,
                                     .weight_gradient = gradients.query_norm,
                                     .output_gradient = query_gradient,
                                     .input = kept.query_raw,
                                     .rstd = kept.query_rstd,
                                     .weight = weights.query_norm,
                                     .cosine = batch.cosine,
                                     .sine = batch.sine},
                                    stream);
  device_.head_norm_rotary_backward({.input_gradient = key_raw_gradient,
                                     .weight_gradient = gradients.key_norm,
                                     .output_gradient = key_gradient,
                                     .input = kept.key_raw,
                                     .rstd = kept.key_rstd,
                                     .weight = weights.key_norm,
                                     .cosine = batch.cosine,
                                     .sine = batch.sine},
                                    stream);
  device_.copy(value_raw_gradient, value_gradient, stream);
  // 2. Through the projections.
  linear_weight_gradient(device_, gradients.query, query_raw_gradient, kept.normed, stream);
  linear_weight_gradient(device_, gradients.key, key_raw_gradient, kept.normed, stream);
  linear_weight_gradient(device_, gradients.value, value_raw_gradient, kept.normed, stream);
  const Tensor normed_gradient = room(residual_gradient.shape(), DType::float32);  // of three terms
  linear_input_gradient(device_, normed_gradient, query_raw_gradient, weights.query, false, stream);
  linear_input_gradient(device_, normed_gradient, key_raw_gradient, weights.key, true, stream);
  linear_input_gradient(device_, normed_gradient, value_raw_gradient, weights.value, true, stream);
  // 1. Through the norm, into the residual stream.
  device_.rms_norm_backward({.input_gradient = residual_gradient,
                             .weight_gradient = gradients.input_norm,
                             .output_gradient = normed_gradient,
                             .input = kept.input,
                             .rstd = kept.input_rstd,
                             .weight = weights.input_norm},
                            stream);
}

}  // namespace annulus
