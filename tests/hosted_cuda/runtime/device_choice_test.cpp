// Which GPU a rank computes on, and how it reaches the others', on a machine that has some.
#include "launcher/device_choice.h"

#include <gtest/gtest.h>

#include "hosted_cuda/control.h"
#include "parallel/staged_transport.h"
#include "parallel/transports.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

class DeviceChoice : public testing::Test {
 protected:
  DeviceChoice() { hosted::set_device_count(2); }
  ~DeviceChoice() override { hosted::set_device_count(4); }

  Settings settings_;
};

TEST_F(DeviceChoice, TakesTheGpuWhereThereIsOne) {
  EXPECT_EQ(choose_device(settings_), DeviceKind::cuda);
  settings_.runtime.device = DeviceKind::cpu;
  EXPECT_EQ(choose_device(settings_), DeviceKind::cpu);
}

TEST_F(DeviceChoice, GivesEveryRankAGpuOfItsOwn) {
  EXPECT_EQ(choose_gpu(settings_, 0, 2), 0);
  EXPECT_EQ(choose_gpu(settings_, 1, 2), 1);
  expect_says(message_of<EnvironmentError>([&] { choose_gpu(settings_, 0, 3); }),
              {"3 ranks on this machine, but it has 2 GPUs", "start 2 of them", "parallel.transport=mpi"});
}

TEST_F(DeviceChoice, LetsRanksShareGpusWhereMessagesGoThroughTheHost) {
  settings_.parallel.transport = TransportKind::mpi;
  EXPECT_EQ(choose_gpu(settings_, 2, 3), 0);
  EXPECT_EQ(choose_gpu(settings_, 3, 4), 1);
}

TEST_F(DeviceChoice, ReachesOtherDevicesAsTheSettingsSay) {
  settings_.runtime.device = DeviceKind::cuda;
  run_as_threads(2, [&](Transport& host) {
    const auto device = make_cuda_device({.gpu = host.rank()});
    Settings settings = settings_;
    const auto direct = make_device_transport(settings, host, *device);
    EXPECT_NE(direct, nullptr);
    EXPECT_EQ(dynamic_cast<StagedTransport*>(direct.get()), nullptr);
    settings.parallel.transport = TransportKind::mpi;
    const auto staged = make_device_transport(settings, host, *device);
    EXPECT_NE(dynamic_cast<StagedTransport*>(staged.get()), nullptr);
    settings.runtime.device = DeviceKind::cpu;
    EXPECT_EQ(make_device_transport(settings, host, *device), nullptr);
  });
}

}  // namespace
}  // namespace annulus
