#include "runtime/model/head.h"

#include <algorithm>

#include "runtime/model/linear.h"

namespace annulus {
void head_loss(Device& device, const ModelConfig& model, const View& input, const View& input_gradient,
               const HeadParameters& weights, const HeadParameters& gradients, const MicroBatch& batch, int64_t tile,
               const View& loss, Stream stream) {
  const int64_t rows = input.rows();
  const Tensor rstd = device.allocate({rows}, DType::float32, Purpose::logits);
  const Tensor normed = device.allocate(input.shape(), input.dtype(), Purpose::logits);
  const Tensor normed_gradient = device.allocate(input.shape(), input.dtype(), Purpose::logits);
  const Tensor logits = device.allocate({tile, model.vocabulary}, input.dtype(), Purpose::logits);
  const Tensor losses = device.allocate({tile}, DType::float32, Purpose::logits);

  device.rms_norm_forward({.output = normed,
                           .rstd = rstd,
                           .input = input,
                           .weight = weights.norm,
                           .eps = static_cast<float>(model.rms_norm_eps)},
                          stream);
  for (int64_t begin = 0; begin < rows; begin += tile) {
    const int64_t end = std::min(rows, begin + tile);
    const View tile_logits = logits->slice(0, end - begin);  // (tile, vocabulary), then its gradient
    const View tile_losses = losses->slice(0, end - begin);
    linear(device, tile_logits, normed->slice(begin, end), weights.projection, {}, stream);
    device.cross_entropy({.logits = tile_logits,
                          .losses = tile_losses,
                          .labels = batch.answers->slice(begin, end),
                          .weights = batch.weights->slice(begin, end)},
                         stream);
    device.sum(loss, tile_losses, stream);
    linear_weight_gradient(device, gradients.projection, tile_logits, normed->slice(begin, end), stream);
    linear_input_gradient(device, normed_gradient->slice(begin, end), tile_logits, weights.projection, {}, stream);
  }
  device.fill_zero(input_gradient, stream);
  device.rms_norm_backward({.input_gradient = input_gradient,
                            .weight_gradient = gradients.norm,
                            .output_gradient = normed_gradient,
                            .input = input,
                            .rstd = rstd,
                            .weight = weights.norm},
                           stream);
}

}  // namespace annulus
