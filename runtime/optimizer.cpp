#include "runtime/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "parallel/shard_windows.h"

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
  for_each_window(parameters, device, WindowUse::read_gradients, stream,
                  [&](const ShardWindow& window) { device.sum_of_squares(sum, window.gradient, stream); });
}

namespace {

// AdamW on what of a parameter lies in a window.
void update_part(const ShardWindow& window, const ParameterPart& part, AdamW rule, Device& device, Stream stream) {
  const int64_t begin = std::max(window.begin, part.offset);
  const int64_t end = std::min(window.end, part.offset + part.count);
  if (begin >= end) return;
  const auto range = [&](const View& view) { return view.slice(begin - window.begin, end - window.begin); };
  rule.master = range(window.master);
  rule.moment1 = range(window.moment1);
  rule.moment2 = range(window.moment2);
  rule.gradient = range(window.gradient);
  rule.weight = range(window.weights);
  if (!part.parameter->decayed) rule.weight_decay = 0;
  device.adamw(rule, stream);
}

}  // namespace

void update(ShardedParameters& parameters, Device& device, const OptimizerSettings& settings, int64_t step, double rate,
            const View& scale, Stream stream) {
  const AdamW rule = {.master = {},
                      .moment1 = {},
                      .moment2 = {},
                      .gradient = {},
                      .weight = {},
                      .scale = scale,
                      .step = step,
                      .learning_rate = rate,
                      .beta1 = settings.beta1,
                      .beta2 = settings.beta2,
                      .eps = settings.eps,
                      .weight_decay = settings.weight_decay};
  for_each_window(parameters, device, WindowUse::update, stream, [&](const ShardWindow& window) {
    for (const ParameterPart& part : parameters.shard(window.unit).parts) {
      update_part(window, part, rule, device, stream);
    }
  });
}

}  // namespace annulus
