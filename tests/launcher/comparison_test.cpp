#include "launcher/comparison.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace annulus {
namespace {

// Warm-up, then two steps.
std::vector<StepReport> run_of(double seconds, double exposed, double loss = 2, int64_t peak = 100) {
  const auto step = [](double step_loss, double norm, int64_t tokens, double time, double hidden_by_nothing) {
    return StepReport{.loss = step_loss,
                      .grad_norm = norm,
                      .tokens = tokens,
                      .seconds = time,
                      .ranks = {{.exposed = hidden_by_nothing}, {.exposed = hidden_by_nothing / 2}}};
  };
  std::vector<StepReport> steps = {step(3, 1, 1000, 100, 90), step(loss, 1, 60, seconds, exposed),
                                   step(2, 2, 40, seconds, exposed)};
  steps.front().peak_bytes = peak;
  return steps;
}

TEST(Comparison, CountsNoWarmUpAndTakesMedians) {
  const auto results =
      compare({{.ranks = 1, .processors = 2, .runs = {run_of(1, 0), run_of(2, 0), run_of(50, 0)}},
               {.ranks = 4, .processors = 4, .runs = {run_of(0.5, 0.1), run_of(0.8, 0.2), run_of(0.4, 0.1)}}});
  ASSERT_EQ(results.size(), 2U);
  EXPECT_DOUBLE_EQ(results[0].tokens_per_second, 25);
  EXPECT_DOUBLE_EQ(results[0].speed_up, 1);
  EXPECT_DOUBLE_EQ(results[0].efficiency, 1);
  EXPECT_DOUBLE_EQ(results[1].tokens_per_second, 100);
  EXPECT_DOUBLE_EQ(results[1].speed_up, 4);
  EXPECT_DOUBLE_EQ(results[1].efficiency, 2);
  EXPECT_DOUBLE_EQ(results[1].exposed, 0.25);
}

TEST(Comparison, FindsTheLargestDifferenceOfAnyStepAndRun) {
  const auto results = compare(
      {{.runs = {run_of(1, 0), run_of(1, 0)}}, {.ranks = 2, .runs = {run_of(1, 0, 2, 300), run_of(1, 0, 2.5, 200)}}});
  EXPECT_EQ(results[0].loss_difference, 0);
  EXPECT_DOUBLE_EQ(results[1].loss_difference, 0.25);
  EXPECT_EQ(results[1].grad_norm_difference, 0);
  EXPECT_EQ(results[1].peak_bytes, 300);
}

TEST(Comparison, SaysWhenItCannotBeTrue) {
  const std::string warning = "too good to be true";
  EXPECT_EQ(as_table({{.ranks = 1}, {.ranks = 2, .efficiency = 1.1}}, "cores").find(warning), std::string::npos);
  EXPECT_NE(as_table({{.ranks = 1}, {.ranks = 2, .efficiency = 3.17}}, "cores").find(warning), std::string::npos);
}

TEST(Comparison, SaysWhenRanksShareCores) {
  const std::vector<ComparedCount> own = {{.ranks = 1, .processors = 2}}, crowd = {{.ranks = 4, .shared = true}};
  EXPECT_EQ(as_table(own, "cores").find("share cores"), std::string::npos);
  EXPECT_NE(as_table(crowd, "cores").find("these ranks share cores"), std::string::npos);
  const auto json = nlohmann::json::parse(as_json(crowd, "GPUs"));
  EXPECT_TRUE(json[0].at("shared").get<bool>());
  EXPECT_EQ(json[0].at("GPUs"), 1);
}

}  // namespace
}  // namespace annulus
