// Numbers that depend on nothing but their place.
#include <cmath>
#include <numbers>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/narrow.h"
#include "kernels/philox.h"

namespace annulus::cpu {

void CpuDevice::fill_normal(const NormalNumbers& args, Stream /*stream*/) {
  auto* const destination = args.destination.as<float>();
  const int64_t last = args.first + args.destination.elements();
  const auto put = [&](int64_t element, double value) {
    if (element >= args.first && element < last) {
      destination[element - args.first] = static_cast<float>(args.deviation * value);
    }
  };
  const int64_t first_pair = args.first / 2, pairs = ceil_divide(last, 2) - first_pair;
  parallel_blocks(threads_, pairs, elements_per_block / 16, [&](int64_t begin, int64_t end) {
    for (int64_t pair = first_pair + begin; pair < first_pair + end; ++pair) {
      const auto words =
          Philox::words(args.seed, RandomStream::initialization, args.sample, static_cast<uint32_t>(pair));
      const double radius = std::sqrt(-2 * std::log((words[0] + 0.5) * 0x1p-32));
      const double angle = 2 * std::numbers::pi * (words[1] * 0x1p-32);
      put(2 * pair, radius * std::cos(angle));
      put(2 * pair + 1, radius * std::sin(angle));
    }
  });
}

}  // namespace annulus::cpu
