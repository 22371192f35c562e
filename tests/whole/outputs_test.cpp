// What a run leaves behind, and that it leaves the same behind every time.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "tests/support/tensors.h"
#include "tests/whole/metrics.h"
#include "tests/whole/tiny_run.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

const std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{60, 33, 50, 64, 9}, 101, 11);
const Words settings = {"data.sequence_length=36", "data.shuffle=true", "train.steps=3", "train.global_batch_size=4"};

std::vector<nlohmann::json> without_times(std::vector<nlohmann::json> steps) {
  for (nlohmann::json& step : steps) {
    for (const char* key :
         {"seconds", "tokens_per_second", "attention_seconds", "compute_seconds", "exposed_seconds"}) {
      EXPECT_EQ(step.erase(key), 1U) << key;
    }
  }
  return steps;
}

struct Split {
  const char* name;
  int ranks;
  Words words;

  friend std::ostream& operator<<(std::ostream& stream, const Split& split) { return stream << split.name; }
};

class Repetition : public testing::TestWithParam<Split> {};

TEST_P(Repetition, GivesTheSameBytes) {
  const auto& [name, ranks, words] = GetParam();
  const TinyRun run({.tied = false}, documents, settings);
  const fs::path first = run.train("first", ranks, words), second = run.train("second", ranks, words);
  for (const char* file : {"model/model.safetensors", "gradient.safetensors"}) {
    EXPECT_TRUE(bytes_of(first / file) == bytes_of(second / file)) << file;
  }
  EXPECT_EQ(without_times(metrics_of(first)), without_times(metrics_of(second)));
}

std::string split_name(const testing::TestParamInfo<Split>& split) {
  return split.param.name;
}

INSTANTIATE_TEST_SUITE_P(Whole, Repetition,
                         testing::Values(Split{"OneRankOfTwoThreads", 1, {"runtime.threads=2"}},
                                         Split{"TwoRanks", 2, {}},
                                         Split{"TwoGroupsOfTwo", 4, {"parallel.data_parallel_size=2"}}),
                         split_name);

TEST(Outputs, HoldTheFiguresOfEveryStep) {
  const TinyRun run({}, documents, settings);
  const std::vector<nlohmann::json> steps = metrics_of(run.train("run", 2));
  ASSERT_EQ(steps.size(), 3U);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i + 1);
    for (const char* key : {"loss", "grad_norm", "learning_rate", "seconds", "tokens_per_second"}) {
      ASSERT_TRUE(steps[i].at(key).is_number_float()) << key;
      EXPECT_GT(steps[i].at(key).get<double>(), 0) << key;
    }
    for (const char* key : {"label_tokens", "tokens", "peak_bytes"}) {
      ASSERT_TRUE(steps[i].at(key).is_number_integer()) << key;
      EXPECT_GT(steps[i].at(key).get<int64_t>(), 0) << key;
    }
    double spent_by_first = 0;
    for (const char* key : {"attention_seconds", "compute_seconds", "exposed_seconds"}) {
      ASSERT_EQ(steps[i].at(key).size(), 2U) << key;
      for (const double seconds : steps[i].at(key)) EXPECT_GT(seconds, 0) << key;
      spent_by_first += steps[i].at(key)[0].get<double>();
    }
    EXPECT_NEAR(spent_by_first, steps[i].at("seconds").get<double>(), 1e-9);
  }
}

TEST(Outputs, SayWhatWillNotBeLearned) {
  const TinyRun run({}, random_documents(std::vector<int64_t>{50, 30, 60}, TinyModel{}.vocabulary, 4), {});
  const Words all = {"data.sequence_length=64", "train.steps=2", "--dry-run"};
  const std::string nothing = run.start("all", 1, all).output;
  expect_says(nothing, {"3 sequences of 64 tokens, from 3 documents with 140 in"});
  EXPECT_EQ(nothing.find("warning"), std::string::npos);
  const Words part = {"data.sequence_length=40",
                      "data.packing=none",
                      "train.steps=1",
                      "optimizer.schedule=cosine",
                      "optimizer.warmup_steps=0",
                      "optimizer.min_learning_rate=0",
                      "--dry-run"};
  expect_says(run.start("part", 1, part).output, {"warning: data.packing=none", ": 30 tokens are left out",
                                                  "warning: the learning rate is 0 in every step"});
}

TEST(Outputs, AreAModelThatCanBeTrainedFurther) {
  for (const bool tied : {true, false}) {
    const TinyRun run({.tied = tied}, documents, settings);
    const fs::path model = run.train("run", 2) / "model";
    const Finished checked = run.start("checked", 1, {"model.path=" + model.string(), "--dry-run"});
    EXPECT_EQ(checked.exit_code, 0) << checked.output;
    EXPECT_EQ(run.start("further", 1, {"model.path=" + model.string()}).exit_code, 0);
  }
}

// What a model's own tensors are, tied or not, is what its input had: nothing that nobody trained, nothing left out.
TEST(Outputs, HoldTheTensorsOfTheInput) {
  for (const bool tied : {true, false}) {
    const TinyRun run({.tied = tied}, documents, settings);
    const fs::path output = run.train("run", 2);
    const HostTensors start = read_tensors(run.weights());
    EXPECT_EQ(start.contains("lm_head.weight"), !tied);
    for (const fs::path& file : {output / "model" / "model.safetensors", output / "gradient.safetensors"}) {
      const HostTensors end = read_tensors(file);
      ASSERT_EQ(end.size(), start.size()) << file;
      for (const auto& [name, tensor] : start) {
        ASSERT_TRUE(end.contains(name)) << name;
        EXPECT_EQ(end.at(name).shape, tensor.shape) << name;
        EXPECT_NE(end.at(name).values, tensor.values) << name;
      }
    }
  }
}

TEST(Outputs, HoldNoHeadOfATiedModelWhoseInputHadOne) {
  const TinyRun run({.tied = true}, documents, settings);
  HostTensors weights = read_tensors(run.weights());
  weights["lm_head.weight"] = weights.at("model.embed_tokens.weight");
  write_tensors(run.weights(), weights);
  EXPECT_FALSE(read_tensors(run.train("run", 2) / "model" / "model.safetensors").contains("lm_head.weight"));
}

TEST(Outputs, HoldConfigAndTokenizerOfTheInput) {
  const TinyRun run({}, documents, settings);
  const std::vector<std::string> names = {
      "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"};
  for (const std::string& name : names) {
    if (name != "config.json") std::ofstream(run.model() / name) << "{\"what\": \"" << name << "\"}\r\n\xC3\xA9";
  }
  const fs::path output = run.train("run", 2) / "model";
  for (const std::string& name : names) EXPECT_EQ(bytes_of(output / name), bytes_of(run.model() / name)) << name;
}

TEST(Outputs, AreOnlyWholeFiles) {
  const TinyRun run({}, documents, settings);
  const fs::path output = run.train("run", 2);
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    if (entry.is_regular_file()) found.insert(fs::relative(entry.path(), output).string());
  }
  EXPECT_EQ(found, (std::set<std::string>{"gradient.safetensors", "metrics.jsonl", "model/config.json",
                                          "model/model.safetensors"}));
}

}  // namespace
}  // namespace annulus
