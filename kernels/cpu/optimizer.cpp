#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cpu {

void CpuDevice::gradient_scale(const GradientScale& args, Stream /*stream*/) {
  const double denominator = *args.denominator.as<double>();
  const double norm = std::sqrt(*args.sum_of_squares.as<double>()) / denominator;
  *args.norm.as<double>() = norm;
  const double clip = args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1.0;
  const bool usable = std::isfinite(norm) && denominator != 0;
  *args.scale.as<float>() = usable ? static_cast<float>(clip / denominator) : std::numeric_limits<float>::quiet_NaN();
}

void CpuDevice::adamw(const AdamW& args, Stream /*stream*/) {
  require_shapes(args);
  const int64_t n = args.master.elements();
  const float scale = *args.scale.as<float>();
  if (std::isnan(scale)) return;
  const auto step = static_cast<double>(args.step);
  const AdamWFactors factors{.gradient_scale = scale,
                             .beta1 = static_cast<float>(args.beta1),
                             .one_minus_beta1 = static_cast<float>(1 - args.beta1),
                             .beta2 = static_cast<float>(args.beta2),
                             .one_minus_beta2 = static_cast<float>(1 - args.beta2),
                             .step_size = static_cast<float>(args.learning_rate / (1 - std::pow(args.beta1, step))),
                             .inverse_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(args.beta2, step))),
                             .eps = static_cast<float>(args.eps),
                             .decay = static_cast<float>(args.learning_rate * args.weight_decay)};
  auto* const master = args.master.as<float>();
  auto* const moment1 = args.moment1.as<float>();
  auto* const moment2 = args.moment2.as<float>();
  const auto* const gradient = args.gradient.as<float>();
  with_float_type(args.weight.dtype(), [&]<class T>() {
    auto* const weight = args.weight.as<T>();
    parallel_blocks(threads_, n, elements_per_block, [&](int64_t begin, int64_t end) {
      math_.of<T>().adamw(master + begin, moment1 + begin, moment2 + begin, gradient + begin, weight + begin, factors,
                          end - begin);
    });
  });
}

}  // namespace annulus::cpu
