// What cannot be trained is refused before anything starts, with what to do about it, once, and with its exit code.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/whole/tiny_run.h"

namespace annulus {
namespace {

const TinyModel model{.vocabulary = 101};
const Words settings = {"data.sequence_length=16", "train.steps=1"};

std::vector<TinyDocument> documents_with_token(int32_t token) {
  std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{16, 16, 16}, model.vocabulary, 12);
  documents[1].input_ids[7] = token;
  return documents;
}

TEST(Refusal, AcceptsTheLastTokenOfTheVocabulary) {
  const TinyRun run(model, documents_with_token(100), settings);
  EXPECT_EQ(run.start("run", 1).exit_code, 0);
}

TEST(Refusal, NamesDocumentAndOffsetOfATokenOutsideTheVocabulary) {
  for (const int32_t token : {101, -1}) {
    const TinyRun run(model, documents_with_token(token), settings);
    for (const int ranks : {1, 2}) {
      const Finished finished = run.start("run", ranks);
      EXPECT_EQ(finished.exit_code, 3);
      expect_says(finished.output, {run.documents().string(), "line 2", "offset 7", std::to_string(token)});
      EXPECT_FALSE(std::filesystem::exists(run.output("run") / "metrics.jsonl"));
    }
  }
}

TEST(Refusal, NamesTheKeyThatAMisspeltOneMeant) {
  const TinyRun run(model, documents_with_token(1), settings);
  for (const int ranks : {1, 2}) {
    const Finished finished = run.start("run", ranks, {"optimizer.learing_rate=1e-3"});
    EXPECT_EQ(finished.exit_code, 2);
    expect_says(finished.output, {"optimizer.learing_rate", "optimizer.learning_rate"});
  }
}

TEST(Refusal, NamesTheSectionOfAMisplacedKey) {
  const TinyRun run(model, documents_with_token(1), settings);
  const Finished finished = run.start("run", 1, {"train.learning_rate=1e-3"});
  EXPECT_EQ(finished.exit_code, 2);
  expect_says(finished.output, {"train.learning_rate", "optimizer.learning_rate"});
}

TEST(Refusal, SaysOnceThatAMeshDoesNotFitTheRanks) {
  const TinyRun run(model, documents_with_token(1), settings);
  const Finished finished = run.start("run", 3, {"parallel.data_parallel_size=2"});
  EXPECT_EQ(finished.exit_code, 2);
  const size_t first = finished.output.find("annulus: error:");
  ASSERT_NE(first, std::string::npos) << finished.output;
  EXPECT_EQ(finished.output.find("annulus: error:", first + 1), std::string::npos) << finished.output;
  expect_says(finished.output, {"parallel.data_parallel_size", "3"});
}

// Each process of such a job would train alone, and all would write the same files.
TEST(Refusal, OfAnSrunThatDoesNotConnectItsProcessesGivesTheLineThatDoes) {
  const TinyRun run(model, documents_with_token(1), settings);
  const std::map<std::string, std::string> srun = {
      {"SLURM_JOB_ID", "7"},         {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"},
      {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  const Finished finished = run.start("run", 1, {}, srun);
  EXPECT_EQ(finished.exit_code, 4);
  expect_says(finished.output, {"2 processes", "srun --mpi=pmix", "mpirun -np 2"});
  EXPECT_FALSE(std::filesystem::exists(run.output("run")));
}

TEST(Refusal, OfMoreAnnouncedRanksThanMpiHasGivesTheLineThatStartsThem) {
  const TinyRun run(model, documents_with_token(1), settings);
  const Finished finished = run.start("run", 1, {}, {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}});
  EXPECT_EQ(finished.exit_code, 4);
  expect_says(finished.output, {"PMI_SIZE=2", "mpirun -np 2"});
}

}  // namespace
}  // namespace annulus
