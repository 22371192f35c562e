// What attention promises on the CPU alone.
#include "tests/kernels/devices.h"
#include "tests/support/attention_reference.h"

namespace annulus::testing {
namespace {

Answers run_with(int threads, const Problem& problem, const Calls& calls) {
  const auto device = make_cpu_device({.threads = threads, .poison = true});
  return run(*device, problem, calls);
}

void expect_same_bits(const Answers& a, const Answers& b) {
  EXPECT_EQ(a.output, b.output);
  EXPECT_EQ(a.log_sum, b.log_sum);
  EXPECT_EQ(a.query_gradient, b.query_gradient);
  EXPECT_EQ(a.key_gradient, b.key_gradient);
  EXPECT_EQ(a.value_gradient, b.value_gradient);
}

TEST(Attention, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    // Many tiles, and a single one.
    for (const auto& [rows, kv_heads] : {std::pair{1100, 2}, {200, 1}}) {
      const Problem problem = make_problem(sink_mask(rows, 40, 600), rows, kv_heads, 1, 64, dtype);
      const Calls calls = random_calls(problem.keys, 3, 2);
      const Answers one = run_with(1, problem, calls);
      for (const int threads : {2, 3}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(threads) + " threads, " + name_of(dtype));
        expect_same_bits(run_with(threads, problem, calls), one);
      }
    }
  }
}

}  // namespace
}  // namespace annulus::testing
