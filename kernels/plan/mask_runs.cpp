#include "kernels/plan/mask_runs.h"

#include <algorithm>

namespace annulus {
namespace {

using Steps = std::array<int32_t, 4>;

Steps bounds_of(const KeyRanges& ranges) {
  return {ranges.begin0, ranges.end0, ranges.begin1, ranges.end1};
}

// From one row to the next, if a run can take them; else a run of one row begins there.
Steps steps_between(const KeyRanges& row, const KeyRanges& next) {
  Steps steps = bounds_of(next);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] -= bounds_of(row)[i];
  const bool small = std::ranges::all_of(steps, [](int32_t step) { return step == 0 || step == 1; });
  return small ? steps : Steps{};
}

KeyRanges moved(const KeyRanges& row, const Steps& by) {
  return {row.begin0 + by[0], row.end0 + by[1], row.begin1 + by[2], row.end1 + by[3]};
}

int64_t sum_to(int64_t n) {
  return n * (n + 1) / 2;
}

// Σ clamp(value + step·i, low, high) for i < rows.
int64_t sum_clamped(int64_t value, int64_t step, int64_t rows, int64_t low, int64_t high) {
  if (step == 0) return rows * std::clamp(value, low, high);
  const int64_t below = std::clamp<int64_t>(low - value, 0, rows);       // rows whose value is below `low`
  const int64_t until = std::clamp<int64_t>(high - value, below, rows);  // and those before one reaches `high`
  return below * low + (until - below) * value + sum_to(until - 1) - sum_to(below - 1) + (rows - until) * high;
}

}  // namespace

std::vector<MaskRun> mask_runs(std::span<const KeyRanges> mask) {
  std::vector<MaskRun> runs;
  for (size_t row = 0; row < mask.size();) {
    MaskRun run{.first = mask[row], .steps = {}, .rows = 1};
    if (row + 1 < mask.size()) run.steps = steps_between(mask[row], mask[row + 1]);
    while (++row < mask.size() && mask[row] == moved(mask[row - 1], run.steps)) ++run.rows;
    runs.push_back(run);
  }
  return runs;
}

int64_t visible_pairs(std::span<const MaskRun> mask, int64_t first, int64_t last) {
  int64_t pairs = 0;
  for (const MaskRun& run : mask) {
    const Steps bounds = bounds_of(run.first);
    for (size_t i = 0; i < bounds.size(); ++i) {  // begins take away what ends give
      const int64_t keys = sum_clamped(bounds[i], run.steps[i], run.rows, first, last);
      pairs += i % 2 == 0 ? -keys : keys;
    }
  }
  return pairs;
}

}  // namespace annulus
