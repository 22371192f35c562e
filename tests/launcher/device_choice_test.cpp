#include "launcher/device_choice.h"

#include <gtest/gtest.h>

#include "parallel/transports.h"

namespace annulus {
namespace {

TEST(DeviceChoice, ReservesMultiprocessorsWhereNcclCarriesMessages) {
  Settings settings;
  settings.runtime.device = DeviceKind::cuda;
  EXPECT_EQ(choose_reserved_multiprocessors(settings, 1), 0);
  EXPECT_EQ(choose_reserved_multiprocessors(settings, 2), nccl_multiprocessors);
  settings.parallel.transport = TransportKind::mpi;
  EXPECT_EQ(choose_reserved_multiprocessors(settings, 2), 0);
  settings.parallel.transport = TransportKind::nccl;
  EXPECT_EQ(choose_reserved_multiprocessors(settings, 2), nccl_multiprocessors);
  settings.runtime.device = DeviceKind::cpu;
  EXPECT_EQ(choose_reserved_multiprocessors(settings, 2), 0);
}

}  // namespace
}  // namespace annulus
