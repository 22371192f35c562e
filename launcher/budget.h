// How much memory and disk a rank may use.
#pragma once

#include "runtime/plan.h"
#include "runtime/settings.h"

namespace annulus {

// What runtime.memory_budget, host_budget and disk_budget say to one of `ranks` ranks, of which `local_ranks` are on
// this machine. Where they are auto: of what GPU `gpu` has free, the rank's share less what is assumed to lie outside
// its plan; of this machine's memory (launcher/machine_memory.h) and of what is free in memory.directory, nine tenths,
// shared by its ranks. `settings.runtime.device` is chosen. ConfigurationError where a GPU's memory is asked for that
// is not there.
Budget budget_of(const Settings& settings, int ranks, int local_ranks, int gpu);

// MemoryError where this machine does not have the memory that a plan within such a budget takes on each of
// `local_ranks` ranks: on the CPU all of it, beside GPUs what waits on the host.
void check_machine(const RankPlan& plan, const PreparedRun& run, int local_ranks);

}  // namespace annulus
