// Loops over the threads of one rank. A body must not throw, and what it computes must not depend on which thread runs
// it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/narrow.h"

namespace annulus::cpu {

// body(i) for i in [0, count), each thread a consecutive part. One thread, or one iteration, is a plain loop without
// OpenMP.
template <class Body>
void parallel_for(int threads, int64_t count, const Body& body) {
  if (threads == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; ++i) body(i);
}

// body(begin, end) over [0, count) in pieces of `block`, the last one shorter.
template <class Body>
void parallel_blocks(int threads, int64_t count, int64_t block, const Body& body) {
  parallel_for(threads, ceil_divide(count, block),
               [&](int64_t i) { body(i * block, std::min(count, (i + 1) * block)); });
}

inline constexpr int64_t elements_per_block = 32768;  // of elementwise operations: well above the cost of a hand-over

}  // namespace annulus::cpu
