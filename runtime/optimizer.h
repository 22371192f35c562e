// The step's last part: from the summed gradients in the shards to new weights.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "parallel/sharded_parameters.h"
#include "runtime/settings.h"

namespace annulus {

// The learning rate of step `step` (from 1) of `steps`: linear warm-up, then constant or a cosine down to the minimum.
double learning_rate(const OptimizerSettings& settings, int64_t step, int64_t steps);

// Adds the squares of all gradients in this rank's shards to `sum` (1) float64.
void add_sum_of_squares(ShardedParameters& parameters, Device& device, const View& sum, Stream stream);

// AdamW on every shard, with the gradients multiplied by `scale` (1) float32; a NaN there leaves everything as it is.
void update(ShardedParameters& parameters, Device& device, const OptimizerSettings& settings, int64_t step, double rate,
            const View& scale, Stream stream);

}  // namespace annulus
