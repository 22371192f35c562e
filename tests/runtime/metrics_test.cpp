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
