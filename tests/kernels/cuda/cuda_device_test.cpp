// What the CUDA device does differently from the CPU, and its workspace.
#include <map>

#include "kernels/plan/plan_device.h"
#include "kernels/workspace.h"
#include "tests/kernels/devices.h"

namespace annulus::testing {
namespace {

TEST(CudaDevice, RefusesAGpuThatIsNotThere) {
  EXPECT_THROW(make_cuda_device({.gpu = cuda_device_count()}), EnvironmentError);
  EXPECT_THROW(make_cuda_device({.gpu = -1}), EnvironmentError);
}

TEST(CudaDevice, NamesTheGpuAndTheLibraryOfItsProducts) {
  const std::string description = make_test_device()->description();
  EXPECT_EQ(description.find("CUDA, GPU 0, "), 0U) << description;
  EXPECT_NE(description.find("cuBLASLt "), std::string::npos) << description;
}

TEST(CudaDevice, SaysWhatDoesNotFit) {
  const std::unique_ptr<Device> device = make_test_device();
  try {
    const Tensor large = device->allocate({int64_t{1} << 46}, DType::float32, Purpose::checkpoints);
    FAIL() << "256 TiB were allocated";
  } catch (const MemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("281474976710656 bytes"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("checkpoints"), std::string::npos) << error.what();
  }
  EXPECT_EQ(device->memory().live_bytes(), 0);
}

// The host cannot look at them without waiting, so they show in the numbers.
TEST(CudaDevice, TurnsTokensAndLabelsOutsideTheVocabularyIntoNaN) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  const Tensor table = tensor_of(device, {7, 8}, DType::bfloat16, random_numbers(56, 1));
  const Tensor tokens = tensor_of(device, {3}, DType::int32, {-1, 6, 7});
  const Tensor output = device.allocate({3, 8}, DType::bfloat16, Purpose::staging);
  device.embedding_forward(output, table, tokens, {});
  EXPECT_TRUE(std::isnan(number_of(device, output->slice(0, 1))));
  expect_same_bits(device, output->slice(1, 2), table->slice(6, 7));
  EXPECT_TRUE(std::isnan(number_of(device, output->slice(2, 3))));

  const Tensor logits = tensor_of(device, {3, 8}, DType::float32, Numbers(24, 1));
  const Tensor losses = device.allocate({3}, DType::float32, Purpose::staging);
  const Tensor labels = tensor_of(device, {3}, DType::int32, {8, 7, -100});
  const Tensor weights = tensor_of(device, {3}, DType::float32, {1, 1, 1});
  device.cross_entropy({.logits = logits, .losses = losses, .labels = labels, .weights = weights}, {});
  const Numbers found = numbers_of(device, losses);
  EXPECT_TRUE(std::isnan(found[0]));
  EXPECT_NEAR(found[1], std::log(8.0), 1e-6);
  EXPECT_TRUE(std::isnan(found[2]));
  EXPECT_TRUE(std::isnan(number_of(device, logits->slice(2, 3))));
}

TEST(CudaDevice, RefusesAttentionItHasNoKernelFor) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  const Tensor scalars = device.allocate({1, 1}, DType::float32, Purpose::staging);
  const Tensor ranges = tensor_of(device, {1, 4}, DType::int32, {0, 0, 0, 0});
  for (const int64_t head_dim : {12, 264}) {
    const Tensor query = device.allocate({1, 1, head_dim}, DType::float32, Purpose::staging);
    const Tensor output = device.allocate({1, 1, head_dim}, DType::float32, Purpose::staging);
    const AttentionForward args{.query = query, .ranges = ranges, .keys = {}, .output = output, .log_sum = scalars};
    EXPECT_THROW(device.attention_forward(args, {}), InternalError);
  }
}

// Every operation that takes workspace, on a device with any memory.
void run_operations_with_workspace(Device& device, int64_t rows, int64_t width) {
  const auto make = [&](const Shape& shape, DType dtype) { return device.allocate(shape, dtype, Purpose::mlp); };
  const Tensor x = make({rows, width}, DType::bfloat16), dx = make({rows, width}, DType::bfloat16);
  const Tensor weight = make({width}, DType::bfloat16), dw = make({width}, DType::float32);
  const Tensor rstd = make({rows}, DType::float32), scalar = make({1}, DType::float64);
  const Tensor product = make({width, width}, DType::float32);
  const Tensor angles = make({rows, 4}, DType::float32), head_rstd = make({rows, width / 8}, DType::float32);
  const Tensor above = make({rows, width / 8, 8}, DType::float32);
  const View heads = x->reshaped({rows, width / 8, 8}), head_gradients = dx->reshaped({rows, width / 8, 8});
  device.matmul({.c = product, .a = x, .b = x, .transpose_a = true}, {});
  device.sum(scalar, product->flat(), {});
  device.sum_of_squares(scalar, product->flat(), {});
  device.rms_norm_backward(
      {.input_gradient = dx, .weight_gradient = dw, .output_gradient = x, .input = x, .rstd = rstd, .weight = weight},
      {});
  device.head_norm_rotary_backward({.input_gradient = head_gradients,
                                    .weight_gradient = dw->slice(0, 8),
                                    .output_gradient = above,
                                    .input = heads,
                                    .rstd = head_rstd,
                                    .weight = weight->slice(0, 8),
                                    .cosine = angles,
                                    .sine = angles},
                                   {});
}

TEST(CudaDevice, TakesTheWorkspaceThatThePlanSays) {
  for (const auto& [rows, width] : {std::pair{1, 8}, {70, 136}, {700, 64}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width));
    PlanDevice plan_device(cuda_workspace_sizes(), true);
    run_operations_with_workspace(plan_device, rows, width);
    MemoryPlan plan = plan_device.recording().recorded();
    place(plan);
    const int64_t extent = plan.extent;
    const std::unique_ptr<Device> device = make_planned_device(std::move(plan), true);
    run_operations_with_workspace(*device, rows, width);  // throws if it asks for more, or writes beyond what it got
    device->memory().enter(Section::step);
    EXPECT_EQ(device->memory().peak_bytes(), extent);
  }
}

}  // namespace
}  // namespace annulus::testing
