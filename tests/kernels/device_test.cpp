#include "kernels/device.h"

#include "kernels/cpu/gemm.h"
#include "tests/kernels/cpu_setups.h"

namespace annulus::cpu {
namespace {

TEST(CpuDevice, DescribesWhatComputesHere) {
  const CpuDevice one({.threads = 1}, Isa::v2);
  EXPECT_EQ(one.description(), "CPU, 1 thread, SSE4.2, " + gemm_library());
  const auto best = make_cpu_device({.threads = 2});
  EXPECT_EQ(best->description(), std::string("CPU, 2 threads, ") + name_of(best_isa()) + ", " + gemm_library());
}

TEST(CpuDevice, RefusesToHaveNoThreads) {
  EXPECT_THROW(make_cpu_device({.threads = 0}), ConfigurationError);
}

TEST(CpuDevice, PoisonsOnlyWhenAskedTo) {
  const auto device = make_cpu_device({.threads = 1, .poison = true});
  const Tensor tensor = device->allocate({3}, DType::bfloat16, Purpose::workspace);
  for (const double number : numbers_of(tensor)) EXPECT_TRUE(std::isnan(number));
}

TEST(CpuDevice, RefusesDtypesAnOperationDoesNotHave) {
  CpuDevice device({.threads = 1}, best_isa());
  const Tensor integers = tensor_of(device, {2}, DType::int32, {1, 2});
  const Tensor floats = tensor_of(device, {2}, DType::float32, {1, 2});
  EXPECT_THROW(device.accumulate(integers, floats, {}), InternalError);
  EXPECT_THROW(device.accumulate(floats, integers, {}), InternalError);
}

}  // namespace
}  // namespace annulus::cpu
