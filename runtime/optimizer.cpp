#include "runtime/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace annulus {

double learning_rate(const OptimizerSettings& settings, int64_t step, int64_t steps) {
  const int64_t warmup = settings.warmup_steps;
  const double peak = settings.learning_rate;
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (settings.schedule == ScheduleKind::constant) return peak;
  const auto rest = static_cast<double>(std::max<int64_t>(1, steps - warmup));
  const double progress = static_cast<double>(step - warmup) / rest;
  const double minimum = settings.min_learning_rate;
  return minimum + 0.5 * (peak - minimum) * (1 + std::cos(std::numbers::pi * progress));
}

void add_sum_of_squares(ShardedParameters& parameters, Device& device, const View& sum, Stream stream) {
  for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
    device.sum_of_squares(sum, parameters.shard(unit).gradient, stream);
  }
}

void update(ShardedParameters& parameters, Device& device, const OptimizerSettings& settings, int64_t step, double rate,
            const View& scale, Stream stream) {
  for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
    const ParameterShard& shard = parameters.shard(unit);
    for (const ParameterPart& part : shard.parts) {
      const auto range = [&](const View& view) { return view.slice(part.offset, part.offset + part.count); };
      device.adamw({.master = range(shard.master),
                    .moment1 = range(shard.moment1),
                    .moment2 = range(shard.moment2),
                    .gradient = range(shard.gradient),
                    .weight = range(shard.weights()),
                    .scale = scale,
                    .step = step,
                    .learning_rate = rate,
                    .beta1 = settings.beta1,
                    .beta2 = settings.beta2,
                    .eps = settings.eps,
                    .weight_decay = part.parameter->decayed ? settings.weight_decay : 0.0},
                   stream);
    }
  }
}

}  // namespace annulus
