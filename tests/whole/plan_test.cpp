// `annulus plan` and the run that follows agree to the byte, on whatever the run is made of.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
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
                         "train.global_batch_size=" + pick({"3", "9"}),
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
    const Words fixed = {"memory.recompute=layer",
                         "memory.mlp_tile=8",
                         "memory.offload_checkpoints=none",
                         "memory.offload_gradients=none",
                         "memory.offload_optimizer=none",
                         "memory.offload_parameters=none",
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

Words split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Plan, AddsUpAndSaysTheSameAsTableAndAsJson) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{150}, model.vocabulary, 4),
                    {"data.sequence_length=150", "runtime.memory_budget=3MB"});
  const nlohmann::json json = plan(run, 3, {});
  int64_t sum = 0;
  for (const auto& [purpose, bytes] : json.at("bytes_at_peak").items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, json.at("live_bytes").get<int64_t>());
  EXPECT_EQ(sum + json.at("gap_bytes").get<int64_t>(), json.at("peak_bytes").get<int64_t>());
  Words words = run.training("unused", {"--ranks", "3"});
  words.front() = "plan";
  const Finished table = run_annulus(words);
  ASSERT_EQ(table.exit_code, 0);
  for (const auto& [purpose, bytes] : json.at("bytes_at_peak").items()) {
    expect_says(table.output, {purpose, std::to_string(bytes.get<int64_t>())});
  }
  for (const char* key :
       {"gap_bytes", "peak_bytes", "host_bytes", "disk_bytes", "outside_bytes", "peak_allocation_bytes", "ring_bytes",
        "parameter_bytes", "disk_traffic_bytes", "longest_sequence_length"}) {
    expect_says(table.output, {std::to_string(json.at(key).get<int64_t>())});
  }
  for (const nlohmann::json& option : json.at("options")) {
    expect_says(table.output, {option.at("settings").get<std::string>()});
  }
}

// What an option says it would need is what choosing it needs; the last is that of twice the ranks.
TEST(Plan, OfEachOptionIsWhatItSays) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{150}, model.vocabulary, 4),
                    {"data.sequence_length=1500"});
  const nlohmann::json now = plan(run, 2, {"memory.mlp_tile=64"});
  int chosen = 0, excluded = 0;
  for (const nlohmann::json& option : now.at("options")) {
    Words words = split(option.at("settings").get<std::string>());
    SCOPED_TRACE(option.at("settings").get<std::string>());
    const bool more_ranks = words.front() == "--ranks";
    EXPECT_EQ(more_ranks, option == now.at("options").back());
    if (more_ranks) words.erase(words.begin(), words.begin() + 2);
    const nlohmann::json that = plan(run, more_ranks ? 4 : 2, words);
    for (const char* key : {"peak_bytes", "disk_bytes", "attention_flops", "matmul_flops", "ring_bytes",
                            "parameter_bytes", "disk_traffic_bytes"}) {
      EXPECT_EQ(option.at(key), that.at(key)) << key;
    }
    EXPECT_EQ(option.at("saved_bytes").get<int64_t>(),
              now.at("peak_bytes").get<int64_t>() - that.at("peak_bytes").get<int64_t>());
    chosen += option.at("chosen").get<bool>() ? 1 : 0;
    excluded += option.at("allowed").get<bool>() ? 0 : 1;
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_GT(excluded, 1);  // other tiles than the one the configuration asks for
}

TEST(Plan, NamesTheLongestSequenceThatFits) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{150}, model.vocabulary, 4),
                    {"runtime.memory_budget=10MB", "runtime.disk_budget=1"});
  for (const int ranks : {1, 2}) {
    const auto plan_of = [&](int64_t length) {
      return plan(run, ranks, {"data.sequence_length=" + std::to_string(length)});
    };
    const auto longest = plan_of(64).at("longest_sequence_length").get<int64_t>();
    EXPECT_GT(longest, 64);
    const auto fits = [&](int64_t length) { return plan_of(length).at("fits").get<bool>(); };
    EXPECT_TRUE(fits(longest)) << longest;
    EXPECT_FALSE(fits(longest + 1)) << longest;
  }
}

TEST(Plan, ReadsNeitherWeightsNorDataUnlessAsked) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{150}, model.vocabulary, 4),
                    {"data.sequence_length=64"});
  std::filesystem::remove(run.weights());
  EXPECT_EQ(run.plan(2).exit_code, 0);
  EXPECT_EQ(run.plan(2, {"--data"}).exit_code, 0);
  EXPECT_EQ(run.plan(2, {"data.train=nowhere"}).exit_code, 0);
  const Finished without = run.plan(2, {"data.train=nowhere", "--data"});
  EXPECT_EQ(without.exit_code, 3);
  expect_says(without.output, {"nowhere"});
}

// Three sequences of 64: two full of one document, the third with its end and two more.
TEST(Plan, CountsThePackingOfTheFirstStepWhenAsked) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{150, 7, 60, 90}, model.vocabulary, 4),
                    {"data.sequence_length=64", "train.global_batch_size=3", "memory.recompute=none"});
  const auto pairs = [](std::initializer_list<int64_t> documents) {
    int64_t sum = 0;
    for (const int64_t rows : documents) sum += rows * (rows + 1) / 2;
    return static_cast<double>(sum);
  };
  const auto layers = static_cast<double>(14 * model.layers * model.heads * model.head_dim);
  for (const int ranks : {1, 2, 3}) {
    const nlohmann::json worst = plan(run, ranks, {}), packed = plan(run, ranks, {"--data"});
    EXPECT_EQ(worst.at("step_of"), "worst case");
    EXPECT_EQ(packed.at("step_of"), "data.train");
    EXPECT_EQ(packed.at("all_ranks").at("attention_flops").get<double>(), layers * pairs({64, 64, 22, 7, 35}));
    EXPECT_LT(packed.at("attention_flops").get<double>(), worst.at("attention_flops").get<double>());
    EXPECT_GE(packed.at("attention_flops").get<double>() * ranks,
              packed.at("all_ranks").at("attention_flops").get<double>());
    EXPECT_LE(packed.at("ring_bytes").get<int64_t>(), worst.at("ring_bytes").get<int64_t>());
    EXPECT_EQ(packed.at("peak_bytes"), worst.at("peak_bytes"));
    EXPECT_EQ(packed.at("matmul_flops"), worst.at("matmul_flops"));
  }
}

// With every buffer filled, the process takes the arena and what is said to lie outside.
TEST(Plan, BoundsWhatTheProcessTakes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  const TinyRun run(model, random_documents(std::vector<int64_t>{100'000}, model.vocabulary, 4),
                    {"data.sequence_length=100000", "attention.sliding_window=8", "debug.poison=true",
                     "model.init=random", "train.steps=1"});
  const nlohmann::json json = plan(run, 1, {});
  ASSERT_EQ(run.start("run", 1).exit_code, 0);
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &usage), 0);
  const int64_t taken = usage.ru_maxrss * 1024, peak = json.at("peak_bytes").get<int64_t>();
  EXPECT_GE(taken, peak);
  EXPECT_LE(taken, peak + json.at("outside_bytes").get<int64_t>());
}

TEST(Plan, SaysWhatItAssumesAboutAGpuAndNeedsNoneForThat) {
  const TinyRun run(model, random_documents(std::vector<int64_t>{150}, model.vocabulary, 4),
                    {"data.sequence_length=64"});
  const Words words = {"runtime.device=cuda", "runtime.memory_budget=1GB"};
  const nlohmann::json json = plan(run, 2, words);
  EXPECT_EQ(json.at("outside_bytes").get<int64_t>(), 1'405'306'368);  // 600 MB, 2 communicators, 32 channels of 12 MiB
  EXPECT_EQ(json.at("outside").get<std::string>(), "assumed: the driver's context, kernels, cuBLASLt, NCCL's buffers");
  Words table = run.training("unused", words);
  table.front() = "plan";
  expect_says(run_annulus(table).output, {"600000000", "assumed: the driver's context, kernels, cuBLASLt"});
  EXPECT_EQ(plan(run, 2, {}).at("outside").get<std::string>(), "about: the process beside that");
}

TEST(Plan, OfEveryConfigurationWeShipFits) {
  const std::filesystem::path configs = std::filesystem::path(CASES_FOLDER) / "../../configs";
  for (const auto& entry : std::filesystem::directory_iterator(configs)) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string ranks = entry.path().stem() == "qwen3-8b-1m" ? "8" : "1";
    const Finished finished =
        run_annulus({"plan", entry.path().string(), "--json", "--ranks", ranks, "runtime.disk_budget=1TB"});
    ASSERT_EQ(finished.exit_code, 0) << finished.output;
    EXPECT_TRUE(nlohmann::json::parse(finished.output).at("fits").get<bool>()) << entry.path();
  }
}

TEST(Plan, OfEveryModelWeShipIsMade) {
  const std::filesystem::path configs = std::filesystem::path(CASES_FOLDER) / "../../configs";
  for (const auto& shape : std::filesystem::directory_iterator(configs / "models")) {
    const Finished finished =
        run_annulus({"plan", (configs / "quickstart.yaml").string(), "model.path=" + shape.path().string()});
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
  }
}

}  // namespace
}  // namespace annulus
