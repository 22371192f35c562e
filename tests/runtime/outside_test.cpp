// What is said to lie outside a rank's plan.
#include "runtime/outside.h"

#include <gtest/gtest.h>

#include <string>

namespace annulus {
namespace {

constexpr int64_t context = 600'000'000;
constexpr int64_t peer = 2 * 32 * (int64_t{12} << 20);  // a buffer of 12 MiB on 32 channels of 2 communicators

TEST(OutsideOnGpu, IsTheContextAndTheBuffersOfUpToSevenPeers) {
  EXPECT_EQ(outside_on_gpu({}, 1).bytes, context);
  EXPECT_EQ(outside_on_gpu({}, 2).bytes, context + peer);
  EXPECT_EQ(outside_on_gpu({}, 8).bytes, context + 7 * peer);
  EXPECT_EQ(outside_on_gpu({}, 64).bytes, context + 7 * peer);
}

TEST(OutsideOnGpu, HasNoBuffersOfNcclWhereMessagesPassOverMpi) {
  Settings settings;
  settings.parallel.transport = TransportKind::mpi;
  EXPECT_EQ(outside_on_gpu(settings, 8).bytes, context);
}

TEST(OutsideOnGpu, IsSaidToBeAssumed) {
  for (const int ranks : {1, 2}) EXPECT_EQ(std::string(outside_on_gpu({}, ranks).what).find("assumed: "), 0U);
}

}  // namespace
}  // namespace annulus
