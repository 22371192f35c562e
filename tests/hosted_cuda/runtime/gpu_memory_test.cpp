// What the launcher makes of a GPU's memory: the budget of a rank, and what a run has taken in the end.
#include <gtest/gtest.h>

#include "hosted_cuda/control.h"
#include "kernels/device.h"
#include "launcher/budget.h"
#include "launcher/occupied.h"
#include "runtime/outside.h"

namespace annulus {
namespace {

constexpr int64_t total = 80'000'000'000;

class GpuMemoryOfRanks : public testing::Test {
 protected:
  GpuMemoryOfRanks() {
    hosted::set_device_count(2);
    hosted::set_device_memory(total);
    settings_.runtime.device = DeviceKind::cuda;
  }
  ~GpuMemoryOfRanks() override {
    hosted::set_device_count(4);
    hosted::set_device_memory(int64_t{16} << 30);
  }

  Settings settings_;
};

TEST_F(GpuMemoryOfRanks, IsWhatTheirGpuHasFreeLessWhatLiesOutsideTheirPlan) {
  EXPECT_EQ(budget_of(settings_, 1, 1, 0).memory, total - outside_on_gpu(settings_, 1).bytes);
  EXPECT_EQ(budget_of(settings_, 16, 2, 0).memory, total - outside_on_gpu(settings_, 16).bytes);
  const auto other = make_cuda_device({.gpu = 1});
  const Tensor taken = other->allocate({1'000'000}, DType::float32, Purpose::mlp);
  EXPECT_EQ(budget_of(settings_, 2, 2, 0).memory, total - outside_on_gpu(settings_, 2).bytes);
  EXPECT_EQ(budget_of(settings_, 2, 2, 1).memory, total - 4'000'000 - outside_on_gpu(settings_, 2).bytes);
}

TEST_F(GpuMemoryOfRanks, IsSharedByThoseOnOneGpuBeforeEachTakesItsOwn) {
  settings_.parallel.transport = TransportKind::mpi;
  EXPECT_EQ(budget_of(settings_, 4, 4, 0).memory, total / 2 - outside_on_gpu(settings_, 4).bytes);
  hosted::set_device_memory(1000);
  EXPECT_EQ(budget_of(settings_, 4, 4, 0).memory, 0);
}

TEST_F(GpuMemoryOfRanks, IsWhatTheConfigurationSays) {
  settings_.runtime.memory_budget = 123;
  EXPECT_EQ(budget_of(settings_, 1, 1, 0).memory, 123);
}

TEST_F(GpuMemoryOfRanks, ThatARunHasTakenIsComparedWithItsPlan) {
  const auto device = make_cuda_device({.gpu = 1});
  const Tensor planned = device->allocate({1'000'000}, DType::float32, Purpose::mlp);
  const Tensor beside = device->allocate({16}, DType::float32, Purpose::mlp);
  EXPECT_EQ(
      taken_of_gpu(1, 4'000'000),
      "GPU 1 has 4000064 bytes taken, of which 4000000 are this rank's plan and 64 are not, other processes' included");
}

}  // namespace
}  // namespace annulus
