// What a rank takes of its device's memory outside the one block that its plan describes; docs/memory.md says where the
// figures come from.
#pragma once

#include <cstdint>

#include "runtime/run.h"

namespace annulus {

struct Outside {
  int64_t bytes = 0;
  const char* what = "";  // what that is, for people; begins with "about" where it was measured, "assumed" where not
};

// Of each of `ranks` ranks that compute on GPUs.
Outside outside_on_gpu(const Settings& settings, int ranks);

// Of a rank of the run on its device: on the CPU, the process beside the block.
Outside outside_of(const PreparedRun& run);

}  // namespace annulus
