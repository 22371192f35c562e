// Where every allocation of a run lies, decided before it starts. A run's allocations are the same in every step and
// every micro-batch, whatever the data, so the plan lists them by section in the order in which they are asked for.
// Workspace is apart: which operations run does depend on the data, but only one runs at a time, so all share one place
// that is large enough for each.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/memory.h"
#include "kernels/storage.h"

namespace annulus {

// What an allocation of `bytes` takes up: rounded to the alignment, with a red zone of at least that much behind it if
// asked.
int64_t planned_bytes(int64_t bytes, bool red_zone);

// Time counts allocations and releases.
struct Life {
  int64_t begin = 0;                                  // from here ...
  int64_t end = std::numeric_limits<int64_t>::max();  // ... until before here
};

struct PlannedAllocation {
  int64_t bytes = 0;
  Purpose purpose = Purpose::workspace;
  std::vector<Life> lives = {Life{}};  // one for every time that its section was entered
  int64_t offset = 0;                  // bytes from the arena's start

  [[nodiscard]] bool lives_at(int64_t time) const;
};

struct MemoryPlan {
  std::array<std::vector<PlannedAllocation>, section_count> sections;  // all but workspace
  PlannedAllocation workspace;
  int64_t extent = 0;      // bytes of the arena
  int64_t peak_bytes = 0;  // most bytes live at once; at most the extent
  int64_t peak_time = 0;   // when
  StoredBytes stored;      // beside the device's memory

  [[nodiscard]] std::array<int64_t, purpose_count> bytes_at_peak() const;  // by purpose
};

// Sets the offsets so that allocations that are live at the same time do not overlap, and extent, peak_bytes,
// peak_time. One after the other at the lowest free offset, as in Pisarchyk and Lee, arXiv 2001.03288, section 5.2
// (greedy by size), in a few orders of which the best is kept: tests/runtime/plan_test.cpp holds it within 3% of
// peak_bytes.
void place(MemoryPlan& plan);

}  // namespace annulus
