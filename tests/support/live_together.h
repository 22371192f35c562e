// Whether two planned allocations are ever live at the same time.
#pragma once

#include <algorithm>

#include "kernels/memory_plan.h"

namespace annulus {

inline bool live_together(const PlannedAllocation& a, const PlannedAllocation& b) {
  return std::ranges::any_of(a.lives, [&](const Life& one) {
    return std::ranges::any_of(b.lives,
                               [&](const Life& other) { return one.begin < other.end && other.begin < one.end; });
  });
}

}  // namespace annulus
