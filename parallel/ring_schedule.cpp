#include "parallel/ring_schedule.h"

#include <algorithm>

#include "kernels/error.h"

namespace annulus {
namespace {

// Rows in order see keys nearly in order, so most ranges only extend the one noted last.
void note(std::vector<Chunk>& seen, int64_t begin, int64_t end) {
  if (begin >= end) return;
  if (!seen.empty() && begin <= seen.back().end && end >= seen.back().begin) {
    seen.back().begin = std::min(seen.back().begin, begin);
    seen.back().end = std::max(seen.back().end, end);
  } else {
    seen.push_back({begin, end});
  }
}

std::vector<Chunk> sorted_union(std::vector<Chunk> chunks) {
  std::sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) { return a.begin < b.begin; });
  std::vector<Chunk> merged;
  for (const Chunk& chunk : chunks) note(merged, chunk.begin, chunk.end);
  return merged;
}

}  // namespace

std::vector<Chunk> visible_keys(std::span<const Chunk> rows, std::span<const KeyRanges> mask) {
  std::vector<Chunk> first, second;
  for (const Chunk& chunk : rows) {
    for (int64_t row = chunk.begin; row < chunk.end; ++row) {
      const KeyRanges& ranges = mask[static_cast<size_t>(row)];
      note(first, ranges.begin0, ranges.end0);
      note(second, ranges.begin1, ranges.end1);
    }
  }
  first.insert(first.end(), second.begin(), second.end());
  return sorted_union(std::move(first));
}

std::vector<Chunk> intersection(std::span<const Chunk> a, std::span<const Chunk> b) {
  std::vector<Chunk> common;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Chunk overlap{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (overlap.rows() > 0) common.push_back(overlap);
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

int64_t most_passing_rows(const SequenceLayout& layout, int64_t window) {
  if (window == 0) return layout.local_rows();
  int64_t chunks = 0;  // of a rank; before each of them lie window − 1 rows that it sees
  for (int rank = 0; rank < layout.ranks(); ++rank) chunks = std::max(chunks, std::ssize(layout.chunks(rank)));
  return std::min(layout.local_rows(), chunks * std::min(window - 1, layout.local_rows()));
}

RingSchedule::RingSchedule(const SequenceLayout& layout, std::span<const KeyRanges> mask, int rank)
    : own_(layout.chunks(rank).begin(), layout.chunks(rank).end()) {
  const int ranks = layout.ranks();
  const std::vector<Chunk> needed_here = visible_keys(own_, mask);
  for (int distance = 1; distance < ranks; ++distance) {
    RingStep step;
    step.source = (rank - distance + ranks) % ranks;
    step.target = (rank + distance) % ranks;
    step.receive = intersection(needed_here, layout.chunks(step.source));
    step.send = intersection(visible_keys(layout.chunks(step.target), mask), own_);
    steps_.push_back(std::move(step));
  }
}

int64_t RingSchedule::local_row(int64_t global_row) const {
  int64_t before = 0;
  for (const Chunk& chunk : own_) {
    if (global_row >= chunk.begin && global_row < chunk.end) return before + global_row - chunk.begin;
    before += chunk.rows();
  }
  throw InternalError("a global row is looked for on a rank that does not hold it");
}

}  // namespace annulus
