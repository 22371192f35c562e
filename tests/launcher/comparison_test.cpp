#include "launcher/comparison.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "kernels/error.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

constexpr const char* step_line =
    R"({"step":1,"loss":2.5,"grad_norm":0.5,"learning_rate":0.1,"label_tokens":7,"tokens":8,"seconds":0.5,)"
    R"("tokens_per_second":16.0,"peak_bytes":4096,"attention_seconds":[0.25,0.25],"compute_seconds":[0.2,0.1],)"
    R"("exposed_seconds":[0.05,0.15]})";

// Warm-up, then two steps.
std::vector<MeasuredStep> run_of(double seconds, double exposed, double loss = 2, int64_t peak = 100) {
  return {{.loss = 3, .grad_norm = 1, .tokens = 1000, .seconds = 100, .exposed_seconds = 90, .peak_bytes = peak},
          {.loss = loss, .grad_norm = 1, .tokens = 60, .seconds = seconds, .exposed_seconds = exposed},
          {.loss = 2, .grad_norm = 2, .tokens = 40, .seconds = seconds, .exposed_seconds = exposed}};
}

TEST(Comparison, ReadsWhatARunWrites) {
  const TemporaryDirectory folder;
  const auto steps = read_metrics(folder.write("metrics.jsonl", std::string(step_line) + "\n" + step_line + "\n"));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].loss, 2.5);
  EXPECT_EQ(steps[1].grad_norm, 0.5);
  EXPECT_EQ(steps[1].tokens, 8);
  EXPECT_EQ(steps[1].seconds, 0.5);
  EXPECT_EQ(steps[1].exposed_seconds, 0.15);
  EXPECT_EQ(steps[1].peak_bytes, 4096);
}

TEST(Comparison, NamesTheLineThatIsNoStep) {
  const TemporaryDirectory folder;
  const auto cut = folder.write("cut.jsonl", std::string(step_line) + "\n" + std::string(step_line).substr(0, 50));
  expect_says(message_of<DataError>([&] { read_metrics(cut); }), {"cut.jsonl' line 2"});
  const auto empty = folder.write("empty.jsonl", "");
  expect_says(message_of<DataError>([&] { read_metrics(empty); }), {"empty.jsonl' has no step"});
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
