// A mask in a few words, to count what attention would see without going through its rows again for every layer.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace annulus {

// Consecutive rows of which each range's begin and end stand still or move on by one a row: a causal document is one
// run, with a window two.
struct MaskRun {
  KeyRanges first;               // of the run's first row
  std::array<int32_t, 4> steps;  // 0 or 1 a row: of begin0, end0, begin1, end1
  int64_t rows = 0;
};

std::vector<MaskRun> mask_runs(std::span<const KeyRanges> mask);

// Pairs of a row and a key it sees, for keys [first, last).
int64_t visible_pairs(std::span<const MaskRun> mask, int64_t first, int64_t last);

}  // namespace annulus
