#include "parallel/sequence_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace annulus {
namespace {

std::vector<int64_t> rows_of(const SequenceLayout& layout, int rank) {
  std::vector<int64_t> all(static_cast<size_t>(layout.global_rows()));
  std::iota(all.begin(), all.end(), 0);
  return layout.cut<int64_t>(all, rank);
}

TEST(SequenceLayout, ZigzagGivesEachRankAPartFromBothEnds) {
  const SequenceLayout layout(LayoutKind::zigzag, 2, 1, 8);
  EXPECT_EQ(rows_of(layout, 0), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(rows_of(layout, 1), (std::vector<int64_t>{2, 3, 4, 5}));
}

TEST(SequenceLayout, ContiguousGivesEachRankOnePart) {
  const SequenceLayout layout(LayoutKind::contiguous, 3, 1, 9);
  EXPECT_EQ(rows_of(layout, 1), (std::vector<int64_t>{3, 4, 5}));
}

TEST(SequenceLayout, SevenTokensOnFourRanksArePaddedToEight) {
  for (const LayoutKind kind : {LayoutKind::zigzag, LayoutKind::contiguous}) {
    const SequenceLayout layout(kind, 4, 1, 7);
    EXPECT_EQ(layout.padded_length(), 8);
    EXPECT_EQ(layout.local_rows(), 2);
  }
}

TEST(SequenceLayout, OneRankNeedsNoPadding) {
  const SequenceLayout layout(LayoutKind::zigzag, 1, 3, 7);
  EXPECT_EQ(layout.padded_length(), 7);
  ASSERT_EQ(layout.chunks(0).size(), 1U);  // adjacent chunks are one
  EXPECT_EQ(layout.chunks(0)[0], (Chunk{0, 21}));
}

TEST(SequenceLayout, EveryRowIsOnExactlyOneRank) {
  for (const LayoutKind kind : {LayoutKind::zigzag, LayoutKind::contiguous}) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (const int64_t length : {1, 2, 7, 16, 101}) {
        const SequenceLayout layout(kind, ranks, 3, length);
        std::vector<int64_t> all;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto rows = rows_of(layout, rank);
          EXPECT_EQ(static_cast<int64_t>(rows.size()), layout.local_rows());
          EXPECT_TRUE(std::ranges::is_sorted(rows));
          all.insert(all.end(), rows.begin(), rows.end());
        }
        std::ranges::sort(all);
        std::vector<int64_t> expected(static_cast<size_t>(layout.global_rows()));
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(all, expected);
      }
    }
  }
}

// Causal attention visits row + 1 keys: with zigzag every rank visits equally many.
TEST(SequenceLayout, ZigzagBalancesCausalAttention) {
  const SequenceLayout layout(LayoutKind::zigzag, 4, 1, 64);
  std::vector<int64_t> work;
  for (int rank = 0; rank < 4; ++rank) {
    const auto rows = rows_of(layout, rank);
    work.push_back(std::accumulate(rows.begin(), rows.end(), static_cast<int64_t>(rows.size())));
  }
  EXPECT_EQ(work, std::vector<int64_t>(4, 64 * 65 / 2 / 4));
}

}  // namespace
}  // namespace annulus
