// `annulus plan` and the run that follows agree to the byte, on whatever the run is made of.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/whole/tiny_run.h"

namespace annulus {
namespace {

const TinyModel model{.layers = 3, .vocabulary = 211};

nlohmann::json plan(const TinyRun& run, int ranks, const Words& words) {
  const Finished finished = run.plan(ranks, words);
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  return nlohmann::json::parse(finished.output);
}

int64_t peak_of(const TinyRun& run, const std::string& name) {
  std::ifstream lines(run.output(name) / "metrics.jsonl");
  int64_t peak = 0;
  for (std::string line; std::getline(lines, line);) {
    peak = std::max(peak, nlohmann::json::parse(line).at("peak_bytes").get<int64_t>());
  }
  return peak;
}

TEST(Plan, IsThePeakOfTheRunToTheByte) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{150, 7, 60, 90}, model.vocabulary, 4), {});
  std::mt19937 random(3);
  const auto pick = [&](std::initializer_list<const char*> choices) {
    return std::string(*(choices.begin() + random() % choices.size()));
  };
  for (int trial = 0; trial < 8; ++trial) {
    const int ranks = 1 + trial % 4;
    const Words words = {"data.sequence_length=" + pick({"33", "64", "150"}),
                         "data.packing=" + pick({"concat", "none"}),
                         "attention.sliding_window=" + pick({"none", "5", "40"}),
                         "parallel.layout=" + pick({"zigzag", "contiguous"}),
                         "parallel.data_parallel_size=" + (ranks % 2 == 0 ? pick({"1", "2"}) : "1"),
                         "model.dtype=" + pick({"float32", "bfloat16"}),
                         "train.micro_batch_size=" + pick({"1", "2"}),
                         "train.global_batch_size=3",
                         "train.steps=2",
                         "memory.recompute=" + pick({"auto", "none", "keep_attention", "layer"}),
                         "memory.mlp_tile=" + pick({"auto", "0", "9"}),
                         "memory.logits_tile=" + pick({"auto", "0", "16"}),
                         "memory.offload_checkpoints=" + pick({"auto", "none", "disk"}),
                         "memory.offload_gradients=" + pick({"auto", "none", "disk"}),
                         "memory.offload_optimizer=" + pick({"auto", "none", "disk"}),
                         "memory.offload_parameters=" + pick({"auto", "none", "disk"}),
                         "debug.poison=" + pick({"true", "false"})};
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, fmt::join(words, " ")));
    const Finished finished = run.start("run", ranks, words);
    ASSERT_EQ(finished.exit_code, 0) << finished.output;
    EXPECT_EQ(plan(run, ranks, words).at("peak_bytes").get<int64_t>(), peak_of(run, "run"));
  }
}

TEST(Plan, OfExactlyTheBudgetRunsAndOneByteLessIsRefused) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{150}, model.vocabulary, 4),
                    {"data.sequence_length=64"});
  for (const int ranks : {1, 2}) {
    const Words fixed = {"memory.recompute=layer",          "memory.mlp_tile=8",
                         "memory.offload_checkpoints=none", "memory.offload_gradients=none",
                         "memory.offload_optimizer=none",   "memory.offload_parameters=none",
                         "train.steps=1"};
    const auto needed = plan(run, ranks, fixed).at("peak_bytes").get<int64_t>();
    const auto with_budget = [&](int64_t bytes) {
      Words words = fixed;
      words.push_back("runtime.memory_budget=" + std::to_string(bytes));
      return words;
    };
    EXPECT_EQ(run.start("enough", ranks, with_budget(needed)).exit_code, 0);
    const Finished refused = run.start("short", ranks, with_budget(needed - 1));
    EXPECT_EQ(refused.exit_code, 5);
    expect_says(refused.output, {std::to_string(needed), std::to_string(needed - 1), "runtime.memory_budget"});
    EXPECT_FALSE(plan(run, ranks, with_budget(needed - 1)).at("fits").get<bool>());
  }
}

TEST(Plan, ChoosesTheFirstRungThatFits) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{900}, model.vocabulary, 4),
                    {"data.sequence_length=900"});
  const auto all = plan(run, 1, {"memory.recompute=none"}).at("peak_bytes").get<int64_t>();
  const auto attention = plan(run, 1, {"memory.recompute=keep_attention"}).at("peak_bytes").get<int64_t>();
  ASSERT_LT(attention, all);
  const Words budget = {"runtime.memory_budget=" + std::to_string(all - 1), "train.steps=1"};
  EXPECT_NE(plan(run, 1, budget).at("memory").get<std::string>().find("keep_attention"), std::string::npos);
  const Finished finished = run.start("run", 1, budget);
  EXPECT_EQ(finished.exit_code, 0);
  expect_says(finished.output, {"memory.recompute=keep_attention"});
}

}  // namespace
}  // namespace annulus
