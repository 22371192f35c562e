#include "kernels/activity_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/kernels/devices.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(HostActivityClock, GivesTimeToTheInnermostActivity) {
  HostActivityClock clock;
  const auto begin = std::chrono::steady_clock::now();
  {
    const ActivityScope attention(clock, Activity::attention);
    std::this_thread::sleep_for(10ms);
    {
      const ActivityScope communication(clock, Activity::communication);
      std::this_thread::sleep_for(30ms);
    }
    std::this_thread::sleep_for(10ms);
  }
  std::this_thread::sleep_for(5ms);  // no activity's
  const ActivitySeconds spent = clock.take();
  EXPECT_GE(spent.attention, 0.02);
  EXPECT_GE(spent.communication, 0.03);
  EXPECT_LE(spent.attention + spent.communication, seconds_since(begin) - 0.005);
  EXPECT_EQ(clock.take().attention, 0);
  EXPECT_EQ(clock.take().communication, 0);
}

// Far more changes than a device that measures by events keeps before it counts.
TEST(ActivityClock, OfEveryDeviceCountsWhatTheDeviceDid) {
  testing::on_every_device([](Device& device) {
    const auto begin = std::chrono::steady_clock::now();
    const Tensor sum = device.allocate({1000}, DType::float32, Purpose::staging);
    device.fill_zero(sum, device.compute_stream());
    device.clock().take();
    for (int i = 0; i < 1500; ++i) {
      const ActivityScope attention(device.clock(), Activity::attention);
      device.accumulate(sum, sum, device.compute_stream());
      const ActivityScope communication(device.clock(), Activity::communication);
      device.accumulate(sum, sum, device.compute_stream());
    }
    const ActivitySeconds spent = device.clock().take();
    EXPECT_GT(spent.attention, 0);
    EXPECT_GT(spent.communication, 0);
    EXPECT_LE(spent.attention + spent.communication, seconds_since(begin));
    EXPECT_EQ(device.clock().take().attention, 0);
    EXPECT_EQ(device.clock().take().communication, 0);
  });
}

}  // namespace
}  // namespace annulus
