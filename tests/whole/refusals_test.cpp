// What cannot be trained is refused before anything starts, with what to do about it, once, and with its exit code.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
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

TEST(Refusal, IsOneLineThatATerminalShowsAsItIs) {
  const TinyRun run(model, documents_with_token(1), settings);
  const std::string word = "optimizer.weight_decay=3\n4\x1B[31m" + std::string(100000, 'x');
  const Finished finished = run.start("run", 1, {word});
  EXPECT_EQ(finished.exit_code, 2);
  expect_says(finished.output, {"optimizer.weight_decay is 3\\x0a4\\x1b[31mxxx"});
  EXPECT_EQ(std::ranges::count(finished.output, '\n'), 1) << finished.output;
  EXPECT_LT(finished.output.size(), 5000U);
}

// Reading it could wait for ever, and ranks would each get a part.
TEST(Refusal, OfAConfigurationThatIsAPipe) {
  const TemporaryDirectory directory;
  const std::string pipe = (directory / "pipe.yaml").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Finished finished = run_annulus({"train", pipe});
  EXPECT_EQ(finished.exit_code, 2);
  expect_says(finished.output, {"pipe.yaml", "not a regular file"});
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

// Rows of a product would stay uncomputed, and nobody would know.
TEST(Refusal, OfFewerOpenMPThreadsThanAskedForNamesTheVariable) {
  const TinyRun run(model, documents_with_token(1), settings);
  const Finished finished = run.start("run", 1, {"runtime.threads=2"}, {{"OMP_THREAD_LIMIT", "1"}});
  EXPECT_EQ(finished.exit_code, 4);
  expect_says(finished.output, {"OMP_THREAD_LIMIT", "runtime.threads"});
}

TEST(Refusal, OfAMicroBatchWithMoreRowsThanThereAreNumbersNamesBothKeys) {
  const TinyRun run(model, documents_with_token(1), settings);
  const Finished finished = run.start("run", 1, {"train.micro_batch_size=4611686018427387904"});
  EXPECT_EQ(finished.exit_code, 2);
  expect_says(finished.output, {"data.sequence_length", "train.micro_batch_size"});
}

TEST(Refusal, OfAMeshWhoseProductOverflowsIsThatOfAnyOther) {
  const TinyRun run(model, documents_with_token(1), settings);
  const Finished finished =
      run.start("run", 1, {"parallel.context_parallel_size=2147483647", "parallel.data_parallel_size=2147483647"});
  EXPECT_EQ(finished.exit_code, 2);
}

TEST(Refusal, OfAModelWithNaNNamesTheTensor) {
  const TinyRun run(model, documents_with_token(1), settings);
  HostTensors weights = read_tensors(run.weights());
  weights.at("model.norm.weight").values[3] = std::numeric_limits<float>::quiet_NaN();
  write_tensors(run.weights(), weights);
  const Finished finished = run.start("run", 1);
  EXPECT_EQ(finished.exit_code, 3);
  expect_says(finished.output, {"model.safetensors", "model.norm.weight", "not finite"});
}

TEST(Refusal, OfSomethingInTheWayOfAResultComesBeforeTraining) {
  const TinyRun run(model, documents_with_token(1), settings);
  std::filesystem::create_directories(run.output("run") / "model" / "config.json");
  const Finished finished = run.start("run", 1);
  EXPECT_EQ(finished.exit_code, 4);
  expect_says(finished.output, {"config.json", "output.directory"});
  EXPECT_FALSE(std::filesystem::exists(run.output("run") / "metrics.jsonl"));
}

TEST(Refusal, OfASecondRunIntoTheSameDirectory) {
  const TinyRun run(model, documents_with_token(1), settings);
  std::filesystem::create_directories(run.output("run"));
  const int directory = ::open(run.output("run").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(directory, LOCK_EX), 0);
  const Finished finished = run.start("run", 1);
  EXPECT_EQ(finished.exit_code, 4);
  expect_says(finished.output, {"another run", run.output("run").string()});
  ::close(directory);
  EXPECT_EQ(run.start("run", 1).exit_code, 0);
}

// Whatever is opened next would take the number of a closed stream, and get the log's lines.
TEST(ClosedStreams, DoNotPutTheLogIntoTheMetrics) {
  const TinyRun run(model, documents_with_token(1), settings);
  std::string command = "exec " + std::string(ANNULUS_EXECUTABLE);
  for (const std::string& word : run.training("run", {})) command += " " + word;
  EXPECT_EQ(run_program({"sh", "-c", command + " 0<&- 1>&- 2>&-"}).exit_code, 0);
  const std::string metrics = bytes_of(run.output("run") / "metrics.jsonl");
  EXPECT_EQ(metrics.front(), '{');
  EXPECT_EQ(std::ranges::count(metrics, '\n'), 1);
}

}  // namespace
}  // namespace annulus
