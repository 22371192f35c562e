#include "parallel/ring_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace annulus {
namespace {

std::vector<KeyRanges> causal(int32_t rows, int32_t window) {
  std::vector<KeyRanges> mask(static_cast<size_t>(rows));
  for (int32_t row = 0; row < rows; ++row) {
    const int32_t begin = window == 0 ? 0 : std::max(0, row + 1 - window);
    mask[static_cast<size_t>(row)] = {begin, row + 1, row + 1, row + 1};
  }
  return mask;
}

TEST(RingSchedule, AWindowCostsTheNeighbourOnly) {
  const SequenceLayout layout(LayoutKind::contiguous, 4, 1, 32);
  const auto mask = causal(32, 4);
  for (int rank = 0; rank < 4; ++rank) {
    const RingSchedule schedule(layout, mask, rank);
    ASSERT_EQ(schedule.steps().size(), 3U);
    const std::vector<Chunk> three_before = {{rank * 8 - 3, rank * 8}};
    EXPECT_EQ(schedule.steps()[0].receive, rank == 0 ? std::vector<Chunk>{} : three_before);
    for (size_t far : {1U, 2U}) {
      EXPECT_TRUE(schedule.steps()[far].receive.empty());
      EXPECT_TRUE(schedule.steps()[far].send.empty());
    }
  }
}

TEST(RingSchedule, PackedDocumentsSendOnlyWhatAPieceContinues) {
  // pieces [0, 6) and [6, 16) over two contiguous ranks of 8 rows: rank 1 needs rows 6 and 7 of rank 0, nothing else
  const SequenceLayout layout(LayoutKind::contiguous, 2, 1, 16);
  std::vector<KeyRanges> mask(16);
  for (int32_t row = 0; row < 16; ++row) mask[static_cast<size_t>(row)] = {row < 6 ? 0 : 6, row + 1, row + 1, row + 1};
  EXPECT_EQ(RingSchedule(layout, mask, 1).steps()[0].receive, (std::vector<Chunk>{{6, 8}}));
  EXPECT_TRUE(RingSchedule(layout, mask, 0).steps()[0].receive.empty());
  EXPECT_EQ(RingSchedule(layout, mask, 0).steps()[0].send, (std::vector<Chunk>{{6, 8}}));
}

// Room for as many is enough however documents lie, and none is left over where one fills a long sequence.
TEST(RingSchedule, NoMoreRowsPassThanAWindowAllows) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 5);
    const auto kind = random() % 2 == 0 ? LayoutKind::zigzag : LayoutKind::contiguous;
    const SequenceLayout layout(kind, ranks, 1, 1 + static_cast<int64_t>(random() % 60));
    const auto window = static_cast<int32_t>(random() % 20);
    std::vector<KeyRanges> mask = causal(static_cast<int32_t>(layout.global_rows()), window);
    const bool packed = random() % 2 == 0;
    int32_t document = 0;
    for (int32_t row = 0; row < static_cast<int32_t>(mask.size()); ++row) {
      if (packed && random() % 9 == 0) document = row;
      int32_t& begin = mask[static_cast<size_t>(row)].begin0;
      begin = std::max(begin, document);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const RingSchedule schedule(layout, mask, rank);
      for (const RingStep& step : schedule.steps()) {
        for (const std::vector<Chunk>& rows : {step.receive, step.send}) {
          int64_t count = 0;
          for (const Chunk& chunk : rows) count += chunk.rows();
          EXPECT_LE(count, most_passing_rows(layout, window));
        }
      }
    }
  }
  const SequenceLayout zigzag(LayoutKind::zigzag, 2, 1, 4096);
  EXPECT_EQ(most_passing_rows(zigzag, 100), 2 * 99);
  const RingSchedule first(zigzag, causal(4096, 100), 0);
  const RingStep& neighbours = first.steps()[0];
  EXPECT_EQ(neighbours.receive, (std::vector<Chunk>{{3072 - 99, 3072}}));
  EXPECT_EQ(neighbours.send, (std::vector<Chunk>{{1024 - 99, 1024}}));
  EXPECT_EQ(most_passing_rows(zigzag, 0), 2048);
  EXPECT_EQ(most_passing_rows(zigzag, 5000), 2048);
}

TEST(RingSchedule, RowsWithoutKeysNeedNothing) {
  const SequenceLayout layout(LayoutKind::zigzag, 3, 1, 12);
  const std::vector<KeyRanges> mask(12);
  const RingSchedule schedule(layout, mask, 1);
  for (const RingStep& step : schedule.steps()) {
    EXPECT_TRUE(step.receive.empty());
    EXPECT_TRUE(step.send.empty());
  }
}

TEST(RingSchedule, LocalRowsCountThroughTheChunks) {
  const SequenceLayout layout(LayoutKind::zigzag, 2, 1, 8);
  const RingSchedule schedule(layout, causal(8, 0), 0);
  EXPECT_EQ(schedule.local_row(1), 1);
  EXPECT_EQ(schedule.local_row(6), 2);
  EXPECT_THROW((void)schedule.local_row(3), InternalError);
}

// For random masks: what arrives is exactly the set of rows that some own query sees, and both ends agree.
TEST(RingSchedule, SendsExactlyWhatIsSeen) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 5);
    const auto kind = random() % 2 == 0 ? LayoutKind::zigzag : LayoutKind::contiguous;
    const SequenceLayout layout(kind, ranks, 1 + static_cast<int64_t>(random() % 3),
                                1 + static_cast<int64_t>(random() % 40));
    const auto rows = static_cast<uint32_t>(layout.global_rows());
    std::vector<KeyRanges> mask(rows);
    for (KeyRanges& ranges : mask) {
      std::array<int32_t, 4> cuts{};
      for (int32_t& cut : cuts) cut = static_cast<int32_t>(random() % (rows + 1));
      std::ranges::sort(cuts);
      if (random() % 3 != 0) ranges = {cuts[0], cuts[1], cuts[2], cuts[3]};
    }
    std::vector<RingSchedule> schedules;
    for (int rank = 0; rank < ranks; ++rank) schedules.emplace_back(layout, mask, rank);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<bool> seen(rows);
      for (const Chunk& chunk : layout.chunks(rank)) {
        for (int64_t row = chunk.begin; row < chunk.end; ++row) {
          const KeyRanges& r = mask[static_cast<size_t>(row)];
          for (int32_t key = r.begin0; key < r.end0; ++key) seen[static_cast<size_t>(key)] = true;
          for (int32_t key = r.begin1; key < r.end1; ++key) seen[static_cast<size_t>(key)] = true;
        }
      }
      for (size_t d = 0; d + 1 < static_cast<size_t>(ranks); ++d) {
        const RingStep& step = schedules[static_cast<size_t>(rank)].steps()[d];
        EXPECT_EQ(step.receive, schedules[static_cast<size_t>(step.source)].steps()[d].send);
        std::vector<bool> arrives(rows);
        for (const Chunk& chunk : step.receive) {
          for (int64_t key = chunk.begin; key < chunk.end; ++key) arrives[static_cast<size_t>(key)] = true;
        }
        for (const Chunk& chunk : layout.chunks(step.source)) {
          for (int64_t key = chunk.begin; key < chunk.end; ++key) {
            EXPECT_EQ(arrives[static_cast<size_t>(key)], seen[static_cast<size_t>(key)]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace annulus
