#include <algorithm>
#include <array>
#include <random>

#include "tests/support/attention_reference.h"

namespace annulus::testing {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

}  // namespace

Ranges full_mask(int64_t rows) {
  return Ranges(index(rows), KeyRanges{0, static_cast<int32_t>(rows), 0x7FFFFFFF, 0x7FFFFFFF});
}

Ranges causal_mask(int64_t rows) {
  return window_mask(rows, rows);
}

Ranges window_mask(int64_t rows, int64_t window) {
  return packed_mask(rows, {rows}, window);
}

Ranges packed_mask(int64_t rows, const std::vector<int64_t>& lengths, int64_t window) {
  Ranges ranges;
  for (const int64_t length : lengths) {
    const auto begin = static_cast<int64_t>(ranges.size());
    for (int64_t i = 0; i < length && begin + i < rows; ++i) {
      const int64_t first = begin + std::max<int64_t>(0, i + 1 - window), end = begin + i + 1;
      ranges.push_back({static_cast<int32_t>(first), static_cast<int32_t>(end), static_cast<int32_t>(end),
                        static_cast<int32_t>(end)});
    }
  }
  ranges.resize(index(rows));
  return ranges;
}

Ranges sink_mask(int64_t rows, int64_t sinks, int64_t window) {
  Ranges ranges;
  for (int64_t i = 0; i < rows; ++i) {
    const auto end = static_cast<int32_t>(i + 1);
    const auto begin = static_cast<int32_t>(std::max<int64_t>(0, i + 1 - window));
    ranges.push_back({0, std::min(begin, static_cast<int32_t>(sinks)), begin, end});
  }
  return ranges;
}

Ranges block_diffusion_mask(int64_t rows, int64_t block) {
  const int64_t half = rows / 2;
  Ranges ranges;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t begin = i / block * block, end = std::min(half, begin + block);
    ranges.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end), static_cast<int32_t>(half),
                      static_cast<int32_t>(half + begin)});
  }
  for (int64_t i = 0; i < half; ++i) {
    const int64_t end = std::min(half, (i / block + 1) * block);
    ranges.push_back({static_cast<int32_t>(half), static_cast<int32_t>(half + end), static_cast<int32_t>(half + end),
                      static_cast<int32_t>(half + end)});
  }
  ranges.resize(index(rows));
  return ranges;
}

Ranges random_mask(int64_t rows, uint32_t seed) {
  std::mt19937 generator(seed);
  Ranges ranges(index(rows));
  for (KeyRanges& r : ranges) {
    if (generator() % 5 == 0) continue;
    std::array<int32_t, 4> bounds{};
    for (int32_t& bound : bounds) bound = static_cast<int32_t>(generator() % static_cast<uint32_t>(rows + 1));
    std::sort(bounds.begin(), bounds.end());
    r = {bounds[0], bounds[1], bounds[2], bounds[3]};
  }
  return ranges;
}

std::vector<NamedMask> every_mask(int64_t rows) {
  return {{"full", full_mask(rows)},
          {"causal", causal_mask(rows)},
          {"window of 1", window_mask(rows, 1)},
          {"window of 5", window_mask(rows, 5)},
          {"packed documents", packed_mask(rows, {rows / 3, 1, rows / 4, 2, rows / 5}, rows)},
          {"packed documents with a window", packed_mask(rows, {rows / 2, rows / 3}, 9)},
          {"sinks and a window", sink_mask(rows, 3, 7)},
          {"block diffusion", block_diffusion_mask(rows, 6)},
          {"random ranges", random_mask(rows, 17)}};
}

}  // namespace annulus::testing
