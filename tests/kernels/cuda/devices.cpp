// The GPU, which is set up in one way; where there is none, these tests are skipped.
#include "tests/kernels/devices.h"

namespace annulus::testing {
namespace {

class NeedsAGpu final : public ::testing::Environment {
 public:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "there is no GPU here";
  }
};

[[maybe_unused]] const auto* const needs_a_gpu = ::testing::AddGlobalTestEnvironment(new NeedsAGpu);

}  // namespace

std::vector<DeviceSetup> device_setups() {
  return {{"CUDA", make_test_device}};
}

std::unique_ptr<Device> make_test_device() {
  return make_cuda_device({.poison = true});
}

std::unique_ptr<Device> make_planned_device(MemoryPlan plan, bool poison) {
  return make_cuda_device({.poison = poison}, std::move(plan));
}

}  // namespace annulus::testing
