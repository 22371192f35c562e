#include "kernels/device.h"

#include <array>
#include <thread>

#include "kernels/cpu/device.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_in_tiles.h"
#include "tests/kernels/devices.h"

namespace annulus::cpu {
namespace {

using namespace annulus::testing;

TEST(CpuDevice, DescribesWhatComputesHere) {
  const std::string bound =
      isa_bound() == IsaBound::none ? "" : std::string(" (ANNULUS_MAX_ISA=") + name_of(isa_bound()) + ')';
  const std::string products = bound + ", " + gemm_library() +
                               (multiplies_in_tiles()   ? ", bfloat16 products in AMX"
                                : multiplies_bfloat16() ? ""
                                                        : ", bfloat16 products in float32");
  const CpuDevice one({.threads = 1}, Isa::v2);
  EXPECT_EQ(one.description(), "CPU, 1 thread, SSE4.2" + products);
  const auto best = make_cpu_device({.threads = 2});
  EXPECT_EQ(best->description(), std::string("CPU, 2 threads, ") + name_of(best_isa()) + products);
}

TEST(CpuDevice, RefusesToHaveNoThreads) {
  EXPECT_THROW(make_cpu_device({.threads = 0}), ConfigurationError);
}

TEST(CpuDevice, PoisonsOnlyWhenAskedTo) {
  const auto device = make_cpu_device({.threads = 1, .poison = true});
  const Tensor tensor = device->allocate({3}, DType::bfloat16, Purpose::workspace);
  for (const double number : numbers_of(*device, tensor)) EXPECT_TRUE(std::isnan(number));
}

// Ranks may be threads of one process: nothing is shared, so each gets what it gets alone.
TEST(CpuDevice, WorksBesideOthersInTheSameProcess) {
  const auto compute = [](Numbers* result) {
    CpuDevice device({.threads = 1, .poison = true}, best_isa());
    const Tensor a = tensor_of(device, {65, 33}, DType::float32, random_numbers(65 * 33, 1));
    const Tensor c = device.allocate({65, 65}, DType::float32, Purpose::workspace);
    const Tensor sum = tensor_of(device, {1}, DType::float64, {0});
    for (int i = 0; i < 20; ++i) {
      device.matmul({.c = c, .a = a, .b = a, .transpose_b = true}, {});
      device.sum(sum, c, {});
    }
    *result = numbers_of(device, c);
    result->push_back(number_of(device, sum));
  };
  Numbers alone;
  compute(&alone);
  std::array<Numbers, 3> together;
  {
    std::vector<std::jthread> ranks;
    for (Numbers& result : together) ranks.emplace_back(compute, &result);
  }
  for (const Numbers& result : together) EXPECT_EQ(result, alone);
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
