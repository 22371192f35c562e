#include "kernels/plan/mask_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace annulus {
namespace {

int64_t pairs_one_by_one(std::span<const KeyRanges> mask, int64_t first, int64_t last) {
  int64_t pairs = 0;
  for (const KeyRanges& row : mask) {
    for (int64_t key = first; key < last; ++key) {
      pairs += (key >= row.begin0 && key < row.end0) || (key >= row.begin1 && key < row.end1) ? 1 : 0;
    }
  }
  return pairs;
}

// Documents under a window, rows that see nothing, blocks with a range of their own behind what came before, and rows
// without any order.
std::vector<KeyRanges> random_mask(std::mt19937& random) {
  std::vector<KeyRanges> mask;
  const auto number = [&](int32_t below) { return static_cast<int32_t>(random() % below); };
  for (int part = 0; part < 6; ++part) {
    const auto begin = static_cast<int32_t>(mask.size());
    const int32_t rows = 1 + number(30), window = 1 + number(40), block = 1 + number(5), kind = number(4);
    for (int32_t i = 0; i < rows; ++i) {
      std::array<int32_t, 4> any = {number(100), number(100), number(100), number(100)};
      std::ranges::sort(any);
      const int32_t row = begin + i, end = row + 1, own = row / block * block;
      mask.push_back(kind == 0   ? KeyRanges{std::max(begin, end - window), end, end, end}
                     : kind == 1 ? KeyRanges{}
                     : kind == 2 ? KeyRanges{0, own, own + 50, own + 50 + block}
                                 : KeyRanges{any[0], any[1], any[2], any[3]});
    }
  }
  return mask;
}

TEST(MaskRuns, SeeWhatTheRowsSee) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<KeyRanges> mask = random_mask(random);
    const std::vector<MaskRun> runs = mask_runs(mask);
    EXPECT_EQ(
        std::accumulate(runs.begin(), runs.end(), int64_t{0}, [](int64_t n, const MaskRun& r) { return n + r.rows; }),
        static_cast<int64_t>(mask.size()));
    for (int slice = 0; slice < 10; ++slice) {
      const int64_t first = random() % 200, last = first + random() % 100;
      EXPECT_EQ(visible_pairs(runs, first, last), pairs_one_by_one(mask, first, last));
    }
  }
}

TEST(MaskRuns, OfADocumentAreOneAndUnderAWindowTwo) {
  std::vector<KeyRanges> causal, window;
  for (int32_t row = 0; row < 1000; ++row) {
    causal.push_back({0, row + 1, row + 1, row + 1});
    window.push_back({std::max(0, row + 1 - 100), row + 1, row + 1, row + 1});
  }
  EXPECT_EQ(mask_runs(causal).size(), 1U);
  EXPECT_EQ(mask_runs(window).size(), 2U);
}

}  // namespace
}  // namespace annulus
