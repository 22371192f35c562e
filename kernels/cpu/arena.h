// The block of host memory under the planned arena of a run on the CPU.
#pragma once

#include <memory>

#include "kernels/planned_arena.h"

namespace annulus::cpu {

// `bytes` bytes; pages are touched as they are used. MemoryError where the host refuses it.
std::unique_ptr<ArenaBlock> make_arena_block(int64_t bytes);

}  // namespace annulus::cpu
