// Final norm, vocabulary projection and loss, forward and backward in one pass over tiles of rows, so that logits for
// all rows never exist.
#pragma once

#include "kernels/device.h"
#include "runtime/batch.h"
#include "runtime/model_config.h"

namespace annulus {

struct HeadParameters {
  View norm;        // (hidden)
  View projection;  // (vocabulary, hidden)
};

// Takes at most `tile` rows at a time. Adds the rows' losses to `loss` (1) float64, writes the gradient of their sum to
// input_gradient (rows, hidden) and adds those of the parameters to `gradients` (float32).
void head_loss(Device& device, const ModelConfig& model, const View& input, const View& input_gradient,
               const HeadParameters& weights, const HeadParameters& gradients, const MicroBatch& batch, int64_t tile,
               const View& loss, Stream stream);

}  // namespace annulus
