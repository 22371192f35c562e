#include "runtime/model/decoder_layer.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "runtime/model/linear.h"

namespace annulus {

LayerKept::LayerKept(Device& device, const ModelConfig& m, int64_t rows, DType dtype, const MemoryRule& rule)
    : input(device.allocate({rows, m.hidden}, dtype, Purpose::checkpoints)) {
  if (!rule.keeps_attention()) return;
  attended = device.allocate({rows, m.heads, m.head_dim}, dtype, Purpose::checkpoints);
  log_sum = device.allocate({rows, m.heads}, DType::float32, Purpose::checkpoints);
}

namespace {

void release(std::initializer_list<Tensor*> used) {
  for (Tensor* tensor : used) *tensor = {};
}

}  // namespace

void DecoderLayer::take_attention_work(LayerWork& work, const View& input) const {
  const int64_t rows = input.rows();
  const Shape queries{rows, model_.heads, model_.head_dim}, keys{rows, model_.kv_heads, model_.head_dim};
  const auto take = [&](const Shape& shape, DType dtype) { return device_.allocate(shape, dtype, Purpose::attention); };
  work.input_rstd = take({rows}, DType::float32);
  work.query_raw = take(queries, input.dtype());
  work.key_raw = take(keys, input.dtype());
  work.query_rstd = take({rows, model_.heads}, DType::float32);
  work.key_rstd = take({rows, model_.kv_heads}, DType::float32);
  work.query = take(queries, input.dtype());
  work.key = take(keys, input.dtype());
  work.value = take(keys, input.dtype());
  if (rule_.keeps_attention()) return;
  work.attended = take(queries, input.dtype());
  work.log_sum = take({rows, model_.heads}, DType::float32);
}

void DecoderLayer::take_mlp_work(LayerWork& work, const View& input) const {
  const int64_t tile = mlp_rows(input.rows());
  const auto take = [&](const Shape& shape, DType dtype) { return device_.allocate(shape, dtype, Purpose::mlp); };
  work.middle = take(input.shape(), input.dtype());
  work.middle_rstd = take({input.rows()}, DType::float32);
  work.middle_normed = take(input.shape(), input.dtype());
  work.gate_up = take({tile, 2 * model_.intermediate}, input.dtype());
  work.activated = take({tile, model_.intermediate}, input.dtype());
}

float DecoderLayer::attention_scale() const {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(model_.head_dim)));
}

View DecoderLayer::attended(const LayerKept& kept, const LayerWork& work) const {
  return rule_.keeps_attention() ? kept.attended : work.attended;
}

View DecoderLayer::log_sum(const LayerKept& kept, const LayerWork& work) const {
  return rule_.keeps_attention() ? kept.log_sum : work.log_sum;
}

int64_t DecoderLayer::mlp_rows(int64_t rows) const {
  return std::min(rows, rule_.mlp_rows);
}

void DecoderLayer::forward(const View& output, const LayerKept& kept, LayerWork& work, const LayerParameters& weights,
                           const MicroBatch& batch, const LocalMask& mask, Stream stream) const {
  project(kept, work, weights, batch, stream);  // 1. to 3.
  attend(kept, work, mask, stream);             // 4.
  if (!rule_.keeps_work()) {
    release({&work.query_raw, &work.key_raw, &work.query_rstd, &work.key_rstd, &work.query, &work.key, &work.value});
  }
  leave_attention(kept, work, weights, stream);  // 5. and 6.
  if (!rule_.keeps_work()) release({&work.input_rstd, &work.attended, &work.log_sum});
  const int64_t rows = output.rows(), tile = mlp_rows(rows);
  for (int64_t begin = 0; begin < rows; begin += tile) {
    const int64_t end = std::min(rows, begin + tile);
    mlp_inside(work, weights, begin, end, stream);  // 7.
    // 8. Back into the residual stream.
    linear(device_, output.slice(begin, end), work.activated->slice(0, end - begin), weights.down,
           work.middle->slice(begin, end), stream);
  }
}

void DecoderLayer::recompute(const LayerKept& kept, LayerWork& work, const LayerParameters& weights,
                             const MicroBatch& batch, const LocalMask& mask, Stream stream) const {
  project(kept, work, weights, batch, stream);
  if (!rule_.keeps_attention()) attend(kept, work, mask, stream);
  leave_attention(kept, work, weights, stream);
}

// Cheap enough to be computed twice: keeping it would cost as much as keeping the input again.
Tensor DecoderLayer::normed_input(const LayerKept& kept, LayerWork& work, const LayerParameters& weights,
                                  Stream stream) const {
  Tensor normed = device_.allocate(kept.input->shape(), kept.input->dtype(), Purpose::attention);
  device_.rms_norm_forward(
      {.output = normed, .rstd = work.input_rstd, .input = kept.input, .weight = weights.input_norm, .eps = eps()},
      stream);
  return normed;
}

void DecoderLayer::project(const LayerKept& kept, LayerWork& work, const LayerParameters& weights,
                           const MicroBatch& batch, Stream stream) const {
  take_attention_work(work, kept.input);
  {
    // 1. Normalise.
    const Tensor normed = normed_input(kept, work, weights, stream);
    // 2. Queries, keys and values.
    linear(device_, work.query_raw, normed, weights.query, {}, stream);
    linear(device_, work.key_raw, normed, weights.key, {}, stream);
    linear(device_, work.value, normed, weights.value, {}, stream);
  }
  // 3. Normalise and rotate each head.
  device_.head_norm_rotary_forward({.output = work.query,
                                    .rstd = work.query_rstd,
                                    .input = work.query_raw,
                                    .weight = weights.query_norm,
                                    .cosine = batch.cosine,
                                    .sine = batch.sine,
                                    .eps = eps()},
                                   stream);
  device_.head_norm_rotary_forward({.output = work.key,
                                    .rstd = work.key_rstd,
                                    .input = work.key_raw,
                                    .weight = weights.key_norm,
                                    .cosine = batch.cosine,
                                    .sine = batch.sine,
                                    .eps = eps()},
                                   stream);
}

void DecoderLayer::attend(const LayerKept& kept, LayerWork& work, const LocalMask& mask, Stream stream) const {
  // 4. Attend, around the ring.
  attention_.forward({.query = work.query,
                      .key = work.key,
                      .value = work.value,
                      .scale = attention_scale(),
                      .output = attended(kept, work),
                      .log_sum = log_sum(kept, work)},
                     mask, stream);
}

void DecoderLayer::leave_attention(const LayerKept& kept, LayerWork& work, const LayerParameters& weights,
                                   Stream stream) const {
  take_mlp_work(work, kept.input);
  // 5. Back into the residual stream.
  linear(device_, work.middle, attended(kept, work), weights.output, kept.input, stream);
  // 6. Normalise for the gated MLP.
  device_.rms_norm_forward({.output = work.middle_normed,
                            .rstd = work.middle_rstd,
                            .input = work.middle,
                            .weight = weights.mlp_norm,
                            .eps = eps()},
                           stream);
}

void DecoderLayer::mlp_inside(LayerWork& work, const LayerParameters& weights, int64_t begin, int64_t end,
                              Stream stream) const {
  // 7. Gate and up, and the gate's activation.
  const View gate_up = work.gate_up->slice(0, end - begin);
  linear(device_, gate_up, work.middle_normed->slice(begin, end), weights.gate_up, {}, stream);
  device_.swiglu_forward(work.activated->slice(0, end - begin), gate_up, stream);
}

void DecoderLayer::backward(const View& residual_gradient, const LayerKept& kept, LayerWork& work,
                            const LayerParameters& weights, const LayerParameters& gradients, const MicroBatch& batch,
                            const LocalMask& mask, Stream stream) const {
  mlp_backward(residual_gradient, work, weights, gradients, stream);
  attention_backward(residual_gradient, kept, work, weights, gradients, batch, mask, stream);
}

void DecoderLayer::mlp_backward(const View& residual_gradient, LayerWork& work, const LayerParameters& weights,
                                const LayerParameters& gradients, Stream stream) const {
  const int64_t rows = residual_gradient.rows(), tile = mlp_rows(rows);
  const bool inside_is_kept = rule_.keeps_work() && tile == rows;
  const Tensor activated_gradient = device_.allocate(work.activated->shape(), residual_gradient.dtype(), Purpose::mlp);
  const Tensor normed_gradient = device_.allocate(residual_gradient.shape(), residual_gradient.dtype(), Purpose::mlp);
  for (int64_t begin = 0; begin < rows; begin += tile) {
    const int64_t end = std::min(rows, begin + tile), count = end - begin;
    if (!inside_is_kept) mlp_inside(work, weights, begin, end, stream);
    const View output_gradient = residual_gradient.slice(begin, end);
    const View inner_gradient = activated_gradient->slice(0, count);
    const View gate_up = work.gate_up->slice(0, count);  // becomes its gradient: nobody needs the values after this
    linear_weight_gradient(device_, gradients.down, output_gradient, work.activated->slice(0, count), stream);
    linear_input_gradient(device_, inner_gradient, output_gradient, weights.down, {}, stream);
    device_.swiglu_backward(gate_up, inner_gradient, gate_up, stream);
    linear_weight_gradient(device_, gradients.gate_up, gate_up, work.middle_normed->slice(begin, end), stream);
    linear_input_gradient(device_, normed_gradient->slice(begin, end), gate_up, weights.gate_up, {}, stream);
  }
  device_.rms_norm_backward({.input_gradient = residual_gradient,
                             .weight_gradient = gradients.mlp_norm,
                             .output_gradient = normed_gradient,
                             .input = work.middle,
                             .rstd = work.middle_rstd,
                             .weight = weights.mlp_norm},
                            stream);
  release({&work.middle, &work.middle_rstd, &work.middle_normed, &work.gate_up, &work.activated});
}

void DecoderLayer::attention_backward(const View& residual_gradient, const LayerKept& kept, LayerWork& work,
                                      const LayerParameters& weights, const LayerParameters& gradients,
                                      const MicroBatch& batch, const LocalMask& mask, Stream stream) const {
  const DType dtype = residual_gradient.dtype();
  const Shape queries = work.query->shape(), keys = work.key->shape();
  const auto room = [&](const Shape& shape, DType type) { return device_.allocate(shape, type, Purpose::attention); };

  // 5. The residual branch: gradient of what attention gave.
  Tensor attended_gradient = room(queries, dtype);
  linear_weight_gradient(device_, gradients.output, residual_gradient, attended(kept, work), stream);
  linear_input_gradient(device_, attended_gradient, residual_gradient, weights.output, {}, stream);
  // 4. Around the ring again.
  const Tensor delta = room(log_sum(kept, work).shape(), DType::float32);
  device_.attention_delta(delta, attended(kept, work), attended_gradient, stream);
  work.attended = {};
  Tensor query_gradient = room(queries, DType::float32);
  Tensor key_gradient = room(keys, DType::float32);
  Tensor value_gradient = room(keys, DType::float32);
  attention_.backward({.query = work.query,
                       .key = work.key,
                       .value = work.value,
                       .scale = attention_scale(),
                       .log_sum = log_sum(kept, work),
                       .delta = delta,
                       .output_gradient = attended_gradient,
                       .query_gradient = query_gradient,
                       .key_gradient = key_gradient,
                       .value_gradient = value_gradient},
                      mask, stream);
  release({&attended_gradient, &work.query, &work.key, &work.value, &work.log_sum});
  // 3. Through rotation and head norms, rounded once on the way out.
  const Tensor query_raw_gradient = room(queries, dtype);
  const Tensor key_raw_gradient = room(keys, dtype);
  const Tensor value_raw_gradient = room(keys, dtype);
  device_.head_norm_rotary_backward({.input_gradient = query_raw_gradient,
                                     .weight_gradient = gradients.query_norm,
                                     .output_gradient = query_gradient,
                                     .input = work.query_raw,
                                     .rstd = work.query_rstd,
                                     .weight = weights.query_norm,
                                     .cosine = batch.cosine,
                                     .sine = batch.sine},
                                    stream);
  device_.head_norm_rotary_backward({.input_gradient = key_raw_gradient,
                                     .weight_gradient = gradients.key_norm,
                                     .output_gradient = key_gradient,
                                     .input = work.key_raw,
                                     .rstd = work.key_rstd,
                                     .weight = weights.key_norm,
                                     .cosine = batch.cosine,
                                     .sine = batch.sine},
                                    stream);
  device_.copy(value_raw_gradient, value_gradient, stream);
  release({&query_gradient, &key_gradient, &value_gradient, &work.query_raw, &work.key_raw});
  // 2. Through the projections.
  const Tensor normed = normed_input(kept, work, weights, stream);
  linear_weight_gradient(device_, gradients.query, query_raw_gradient, normed, stream);
  linear_weight_gradient(device_, gradients.key, key_raw_gradient, normed, stream);
  linear_weight_gradient(device_, gradients.value, value_raw_gradient, normed, stream);
  const Tensor normed_gradient = room(residual_gradient.shape(), DType::float32);  // of three terms
  linear_input_gradient(device_, normed_gradient, query_raw_gradient, weights.query, {}, stream);
  linear_input_gradient(device_, normed_gradient, key_raw_gradient, weights.key, normed_gradient, stream);
  linear_input_gradient(device_, normed_gradient, value_raw_gradient, weights.value, normed_gradient, stream);
  // 1. Through the norm, into the residual stream.
  device_.rms_norm_backward({.input_gradient = residual_gradient,
                             .weight_gradient = gradients.input_norm,
                             .output_gradient = normed_gradient,
                             .input = kept.input,
                             .rstd = work.input_rstd,
                             .weight = weights.input_norm},
                            stream);
}

}  // namespace annulus
