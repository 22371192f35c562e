// How much memory and disk a rank may use.
#pragma once

#include "runtime/plan.h"
#include "runtime/settings.h"

namespace annulus {

// What runtime.memory_budget, host_budget and disk_budget say; where they are auto, nine tenths of this machine's memory,
// of what its GPU has free and of what is free in memory.directory, shared by `local_ranks`. `settings.runtime.device` is
// chosen. ConfigurationError where a GPU's memory is asked for that is not there.
Budget budget_of(const Settings& settings, int local_ranks);

}  // namespace annulus
