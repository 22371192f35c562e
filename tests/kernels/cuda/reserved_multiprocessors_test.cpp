#include "tests/kernels/devices.h"
#include "tests/support/attention_reference.h"

namespace annulus::testing {
namespace {

// Blocks that work on many items, one after another, among them tiles that see nothing.
TEST(ReservedMultiprocessors, ChangeNoBitOfAttention) {
  const Calls calls = {{{0, 130}, {200, 300}}, {{130, 200}}};
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const Ranges& ranges : {causal_mask(300), packed_mask(300, {60, 50}, 300)}) {
      const Problem problem = make_problem(ranges, 300, 2, 2, 64, dtype);
      const Answers expected = run(*make_test_device(), problem, calls);
      for (const int reserved : {1, 2, 1000}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + ", reserved " + std::to_string(reserved));
        const auto device = make_cuda_device({.reserved_multiprocessors = reserved, .poison = true});
        const Answers answers = run(*device, problem, calls);
        EXPECT_EQ(answers.output, expected.output);
        EXPECT_EQ(answers.log_sum, expected.log_sum);
        EXPECT_EQ(answers.query_gradient, expected.query_gradient);
        EXPECT_EQ(answers.key_gradient, expected.key_gradient);
        EXPECT_EQ(answers.value_gradient, expected.value_gradient);
      }
    }
  }
}

}  // namespace
}  // namespace annulus::testing
