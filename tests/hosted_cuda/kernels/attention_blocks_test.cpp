// How many blocks attention has on the hosted device, which has 4 multiprocessors.
#include <gtest/gtest.h>

#include "hosted_cuda/control.h"
#include "tests/support/attention_reference.h"

namespace annulus::testing {
namespace {

// Of forward, delta and backward, and of what carries the numbers to and from the device.
int64_t blocks_with(int reserved, const Problem& problem) {
  const auto device = make_cuda_device({.reserved_multiprocessors = reserved});
  const int64_t before = hosted::launched_blocks();
  run(*device, problem);
  return hosted::launched_blocks() - before;
}

// With a head_dim of 128 a multiprocessor holds one block, and a tile has 128 rows.
TEST(AttentionBlocks, AreAtMostWhatTheMultiprocessorsHoldThatAreNotReserved) {
  const Problem problem = make_problem(causal_mask(300), 300, 2, 2, 128, DType::bfloat16);
  constexpr int64_t tiles = 3, items = tiles * 4 + tiles * 4 + tiles * 2;  // forward, dQ, dK and dV
  const int64_t without_limit = blocks_with(0, problem);
  for (const auto& [reserved, left] : {std::pair{1, 3}, {2, 2}, {3, 1}, {4, 1}, {1000, 1}}) {
    SCOPED_TRACE("reserved " + std::to_string(reserved));
    EXPECT_EQ(without_limit - blocks_with(reserved, problem), items - 3 * left);
  }
}

}  // namespace
}  // namespace annulus::testing
