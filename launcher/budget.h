// How much memory a rank may use.
#pragma once

#include <cstdint>

#include "runtime/settings.h"

namespace annulus {

// runtime.memory_budget, or what the device has: nine tenths of this machine's memory, shared by `local_ranks`. Bytes.
int64_t memory_budget(const Settings& settings, int local_ranks);

}  // namespace annulus
