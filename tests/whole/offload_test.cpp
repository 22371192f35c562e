// What waits on disk: where it may be, how much of it, and that nothing is left.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/whole/tiny_run.h"

namespace annulus {
namespace {

const TinyModel model{.layers = 3, .vocabulary = 101};
const Words all_on_disk = {"memory.recompute=layer", "memory.offload_checkpoints=disk", "memory.offload_gradients=disk",
                           "memory.offload_optimizer=disk", "memory.offload_parameters=disk"};

class Offload : public testing::Test {
 protected:
  Words on_disk(const std::string& word) const {
    Words words = all_on_disk;
    words.push_back(word);
    return words;
  }

  const TemporaryDirectory folder_;
  const TinyRun run_{model,
                     random_documents(std::vector<int64_t>{64, 20}, model.vocabulary, 12),
                     {"data.sequence_length=32", "train.steps=2"}};
};

TEST_F(Offload, ToTheHostIsRefusedOnTheCpu) {
  for (const std::string key : {"checkpoints", "gradients", "optimizer", "parameters"}) {
    for (const int ranks : {1, 2}) {
      const Finished finished = run_.start("run", ranks, {"memory.offload_" + key + "=host"});
      EXPECT_EQ(finished.exit_code, 2);
      expect_says(finished.output, {"memory.offload_" + key, "host", "disk"});
    }
  }
}

TEST_F(Offload, TakesExactlyItsBudgetOfDiskAndNotAByteMore) {
  for (const int ranks : {1, 3}) {
    const Finished planned = run_.plan(ranks, all_on_disk);
    ASSERT_EQ(planned.exit_code, 0) << planned.output;
    const auto bytes = nlohmann::json::parse(planned.output).at("disk_bytes").get<int64_t>();
    ASSERT_GT(bytes, 0);
    EXPECT_EQ(run_.start("enough", ranks, on_disk("runtime.disk_budget=" + std::to_string(bytes))).exit_code, 0);
    const Finished refused = run_.start("short", ranks, on_disk("runtime.disk_budget=" + std::to_string(bytes - 1)));
    EXPECT_EQ(refused.exit_code, 5);
    expect_says(refused.output, {"runtime.disk_budget", std::to_string(bytes), std::to_string(bytes - 1)});
  }
}

TEST_F(Offload, IsRefusedWhereItsDirectoryCannotBe) {
  std::ofstream(folder_ / "file") << "in the way";
  for (const int ranks : {1, 2}) {
    const Finished finished = run_.start("run", ranks, on_disk("memory.directory=" + (folder_ / "file").string()));
    EXPECT_EQ(finished.exit_code, 4);
    expect_says(finished.output, {"memory.directory", (folder_ / "file").string()});
    EXPECT_FALSE(std::filesystem::exists(run_.output("run") / "metrics.jsonl"));
  }
}

TEST_F(Offload, LeavesNothing) {
  const std::filesystem::path directory = folder_ / "made for it";
  EXPECT_EQ(run_.start("run", 2, on_disk("memory.directory=" + directory.string())).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

}  // namespace
}  // namespace annulus
