// `annulus compare`: real runs at several rank counts, and one table.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/whole/metrics.h"
#include "tests/whole/tiny_run.h"

namespace annulus {
namespace {

const TinyModel model{.vocabulary = 101};
const std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{60, 33, 50, 64}, 101, 13);
const Words settings = {"data.sequence_length=48", "train.steps=3"};

TEST(Compare, RunsEveryCountAndFindsTheSameNumbers) {
  const TinyRun run(model, documents, settings);
  const Finished finished = run.compare("run", {"--ranks", "1,2,3", "--rounds", "2", "--json"});
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  const auto counts = nlohmann::json::parse(finished.output.substr(finished.output.find("[\n")));
  ASSERT_EQ(counts.size(), 3U);
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_EQ(counts[i].at("ranks"), i + 1);
    EXPECT_GT(counts[i].at("tokens_per_second").get<double>(), 0);
    EXPECT_LE(counts[i].at("loss_difference").get<double>(), 2e-6);
    EXPECT_LE(counts[i].at("grad_norm_difference").get<double>(), 1e-5);
    const auto steps = metrics_of(run.output("run") / "compare" / (std::to_string(i + 1) + "-ranks"));
    EXPECT_EQ(counts[i].at("peak_bytes"), steps.back().at("peak_bytes"));
    EXPECT_FALSE(std::filesystem::exists(run.output("run") / "compare" / (std::to_string(i + 1) + "-ranks") / "model"));
  }
  EXPECT_EQ(counts[0].at("speed_up"), 1);
  EXPECT_GT(counts[1].at("exposed").get<double>(), 0);
}

TEST(Compare, SaysWhenRanksShareCores) {
  const TinyRun run(model, documents, settings);
  const std::string more_than_cores = std::to_string(std::thread::hardware_concurrency() + 1);
  const Finished finished =
      run.compare("run", {"--ranks", "1", "--rounds", "1"}, {"runtime.threads=" + more_than_cores});
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  expect_says(finished.output, {"tokens/s", "share cores"});
}

TEST(Compare, RefusesWhatItCannotCompare) {
  const Finished one_step =
      TinyRun(model, documents, {"data.sequence_length=48", "train.steps=1"}).compare("run", {"--ranks", "1,2"});
  EXPECT_EQ(one_step.exit_code, 2);
  expect_says(one_step.output, {"train.steps is 1", "warms up"});
  const TinyRun run(model, documents, settings);
  const Finished twice = run.compare("run", {"--ranks", "2,1,2"});
  EXPECT_EQ(twice.exit_code, 2);
  expect_says(twice.output, {"--ranks has 2 twice"});
  const Finished none = run.compare("run", {});
  EXPECT_EQ(none.exit_code, 2);
  expect_says(none.output, {"--ranks"});
}

TEST(Compare, RefusesToRunUnderMpirun) {
  const TinyRun run(model, documents, settings);
  Words words = run.training("run", {});
  words.front() = "compare";
  words.insert(words.end(), {"--ranks", "1,2"});
  const Finished finished = run_program(under_mpirun(1, ANNULUS_EXECUTABLE, words));
  EXPECT_EQ(finished.exit_code, 2);
  expect_says(finished.output, {"without mpirun"});
}

TEST(Compare, EndsAsTheRunThatFailed) {
  std::vector<TinyDocument> bad = documents;
  bad[1].input_ids[7] = 101;
  const TinyRun run(model, bad, settings);
  const Finished finished = run.compare("run", {"--ranks", "2,1"});
  EXPECT_EQ(finished.exit_code, 3);
  expect_says(finished.output, {"the run with 2 ranks failed", "offset 7", "2-ranks.log"});
}

}  // namespace
}  // namespace annulus
