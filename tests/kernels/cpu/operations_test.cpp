// What operations promise on the CPU alone.
#include "kernels/cpu/device.h"
#include "tests/kernels/devices.h"

namespace annulus::cpu {
namespace {

using namespace annulus::testing;

TEST(Sum, DoesNotDependOnTheNumberOfThreads) {
  Numbers sums;
  for (const int threads : {1, 2, 3, 5}) {
    CpuDevice device({.threads = threads}, best_isa());
    const Tensor source = tensor_of(device, {1'000'003}, DType::float32, random_numbers(1'000'003, 1));
    const Tensor sum = tensor_of(device, {1}, DType::float64, {0});
    device.sum(sum, source, {});
    device.sum_of_squares(sum, source, {});
    sums.push_back(number_of(device, sum));
  }
  EXPECT_EQ(sums, Numbers(4, sums[0]));
}

// Only the pages that are looked at exist, so this table costs nothing.
TEST(Embedding, FindsTheLastRowOfATableBeyond32BitOffsets) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer touches every page";
#endif
  CpuDevice device({.threads = 1}, best_isa());
  constexpr int64_t rows = 70'001;
  constexpr int64_t width = 32'768;  // 2.3e9 elements
  const Tensor table = device.allocate({rows, width}, DType::bfloat16, Purpose::workspace);
  const Tensor row = tensor_of(device, {1, width}, DType::bfloat16, random_numbers(width, 1));
  device.copy(table->slice(rows - 1, rows), row, {});
  const Tensor tokens = tensor_of(device, {1}, DType::int32, {rows - 1});
  const Tensor output = device.allocate({1, width}, DType::bfloat16, Purpose::workspace);
  device.embedding_forward(output, table, tokens, {});
  expect_same_bits(device, output, row);
}

TEST(Embedding, RefusesTokensOutsideTheVocabulary) {
  CpuDevice device({.threads = 1}, best_isa());
  const Tensor table = tensor_of(device, {7, 2}, DType::float32, random_numbers(14, 1));
  const Tensor output = device.allocate({1, 2}, DType::float32, Purpose::workspace);
  for (const double token : {-1.0, 7.0}) {
    const Tensor tokens = tensor_of(device, {1}, DType::int32, {token});
    EXPECT_THROW(device.embedding_forward(output, table, tokens, {}), InternalError);
    EXPECT_THROW(device.embedding_backward(table, output, tokens, {}), InternalError);
  }
}

TEST(CrossEntropy, RefusesLabelsOutsideTheVocabulary) {
  CpuDevice device({.threads = 1}, best_isa());
  const Tensor logits = tensor_of(device, {1, 5}, DType::float32, Numbers(5, 0));
  const Tensor loss = tensor_of(device, {1}, DType::float32, {0}), weight = tensor_of(device, {1}, DType::float32, {1});
  for (const double label : {5.0, -100.0}) {
    const Tensor labels = tensor_of(device, {1}, DType::int32, {label});
    EXPECT_THROW(device.cross_entropy({.logits = logits, .losses = loss, .labels = labels, .weights = weight}, {}),
                 InternalError);
  }
}

}  // namespace
}  // namespace annulus::cpu
