#include "runtime/metrics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/error.h"
#include "tests/runtime/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

const StepReport report{.step = 3,
                        .steps = 9,
                        .loss = 2.5,
                        .grad_norm = 0.1,
                        .learning_rate = 1e-4,
                        .label_tokens = 7,
                        .tokens = 8,
                        .seconds = 0.5,
                        .ranks = {{0.25, 0.125, 0.125}, {0.375, 0.125, 0.0}},
                        .peak_bytes = 4096};

TEST(MetricsFile, HasALineAStepAsSoonAsItIsWritten) {
  const TemporaryDirectory folder;
  MetricsFile file(folder.write("metrics.jsonl", "of an earlier run"));
  file.write(report);
  const std::string line = bytes_of(folder / "metrics.jsonl");
  EXPECT_EQ(line,
            "{\"step\":3,\"loss\":2.5,\"grad_norm\":0.1,\"learning_rate\":0.0001,\"label_tokens\":7,\"tokens\":8,"
            "\"seconds\":0.5,\"tokens_per_second\":16.0,\"peak_bytes\":4096,\"attention_seconds\":[0.25,0.375],"
            "\"compute_seconds\":[0.125,0.125],\"exposed_seconds\":[0.125,0.0]}\n");
  file.write(report);
  EXPECT_EQ(bytes_of(folder / "metrics.jsonl"), line + line);
}

TEST(MetricsFile, IsReadAsItWasWritten) {
  const TemporaryDirectory folder;
  MetricsFile file(folder / "metrics.jsonl");
  file.write(report);
  file.write(report);
  const std::vector<StepReport> steps = read_metrics(folder / "metrics.jsonl");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].step, 3);
  EXPECT_EQ(steps[1].loss, 2.5);
  EXPECT_EQ(steps[1].grad_norm, 0.1);
  EXPECT_EQ(steps[1].learning_rate, 1e-4);
  EXPECT_EQ(steps[1].label_tokens, 7);
  EXPECT_EQ(steps[1].tokens, 8);
  EXPECT_EQ(steps[1].seconds, 0.5);
  EXPECT_EQ(steps[1].peak_bytes, 4096);
  ASSERT_EQ(steps[1].ranks.size(), 2U);
  EXPECT_EQ(steps[1].ranks[1].attention, 0.375);
  EXPECT_EQ(steps[1].ranks[1].compute, 0.125);
  EXPECT_EQ(steps[1].ranks[0].exposed, 0.125);
}

TEST(MetricsFile, NamesTheLineThatIsNoStep) {
  const TemporaryDirectory folder;
  MetricsFile file(folder / "metrics.jsonl");
  file.write(report);
  const std::string line = bytes_of(folder / "metrics.jsonl");
  const auto cut = folder.write("cut.jsonl", line + line.substr(0, 50));
  expect_says(message_of<DataError>([&] { read_metrics(cut); }), {"cut.jsonl' line 2"});
  const auto empty = folder.write("empty.jsonl", "");
  expect_says(message_of<DataError>([&] { read_metrics(empty); }), {"empty.jsonl' has no step"});
}

TEST(MetricsFile, HoldsWholeLinesOnAFullDisk) {
  const TemporaryDirectory folder;
  MetricsFile file(folder / "metrics.jsonl");
  file.write(report);
  const std::string line = bytes_of(folder / "metrics.jsonl");
  {
    const FileSizeLimit limit(line.size() + 10);
    expect_says(message_of<MemoryError>([&] { file.write(report); }), {"metrics.jsonl'", "File too large"});
  }
  EXPECT_EQ(bytes_of(folder / "metrics.jsonl"), line);
}

TEST(MetricsFile, SaysWhyItCannotBeWritten) {
  const TemporaryDirectory folder;
  expect_says(message_of<EnvironmentError>([&] { MetricsFile file(folder / "absent/metrics.jsonl"); }),
              {"cannot write '", "absent/metrics.jsonl'", "No such file"});
}

}  // namespace
}  // namespace annulus
