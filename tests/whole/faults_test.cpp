// One rank fails in some phase of a run, in some way: the job ends at once, fails as a whole and says which rank it
// was.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <ostream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"
#include "tests/whole/process.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

struct Place {
  int ranks = 2;
  int rank = 1;  // the one that fails

  friend std::ostream& operator<<(std::ostream& stream, const Place& place) {
    return stream << "rank " << place.rank << " of " << place.ranks;
  }
};

// Trains a small model for three steps under mpirun, and cleans up whatever is left of that.
class FaultyJob {
 public:
  FaultyJob() {
    const TinyModel model;
    const std::vector<int64_t> lengths = {64, 64, 64};
    write_model(directory_ / "model", model, 1);
    write_documents(directory_ / "documents.jsonl", random_documents(lengths, model.vocabulary, 2));
    directory_.write("config.yaml",
                     "model: {path: model, dtype: float32}\n"
                     "data: {train: documents.jsonl, sequence_length: 64}\n"
                     "train: {steps: 3}\n"
                     "runtime: {device: cpu, threads: 1}\n");
  }

  FaultyJob(const FaultyJob&) = delete;
  FaultyJob& operator=(const FaultyJob&) = delete;
  ~FaultyJob() {
    for (const int process : processes()) kill(process, SIGKILL);
  }

  Finished run(const Place& place, const std::string& phase, const std::string& way) {
    Finished finished = run_program(
        under_mpirun(place.ranks, FAULTY_RANK_EXECUTABLE,
                     {std::to_string(place.rank), phase, way, mark().string(), "train",
                      (directory_ / "config.yaml").string(), "output.directory=" + (directory_ / "output").string()}));
    while (!processes().empty() && seconds_since_fault() < 60) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return finished;
  }

  [[nodiscard]] fs::path mark() const { return directory_ / "failed"; }
  [[nodiscard]] std::vector<int> processes() const { return processes_with(directory_.path().string()); }
  [[nodiscard]] double seconds_since_fault() const {
    return std::chrono::duration<double>(fs::file_time_type::clock::now() - fs::last_write_time(mark())).count();
  }

 private:
  TemporaryDirectory directory_;
};

class Fault : public testing::TestWithParam<std::tuple<Place, std::string, std::string>> {};

TEST_P(Fault, OfOneRankEndsTheJobWithinSecondsAndIsNamed) {
  const auto& [place, phase, way] = GetParam();
  FaultyJob job;
  const Finished finished = job.run(place, phase, way);
  ASSERT_TRUE(fs::exists(job.mark())) << finished.output;
  EXPECT_LT(job.seconds_since_fault(), 10);
  EXPECT_TRUE(job.processes().empty());
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_NE(finished.output.find("rank " + std::to_string(place.rank)), std::string::npos) << finished.output;
  if (way == "throw" || way == "heard") {
    EXPECT_EQ(finished.exit_code, 1);
    EXPECT_NE(finished.output.find("this rank was told to fail"), std::string::npos) << finished.output;
  }
}

std::string fault_name(const testing::TestParamInfo<Fault::ParamType>& info) {
  const auto& [place, phase, way] = info.param;
  return way + "_in_" + phase + "_of_" + std::to_string(place.rank) + "_of_" + std::to_string(place.ranks);
}

const auto phases = testing::Values("load", "data", "forward", "backward", "optimizer", "save");
const auto ways = testing::Values("throw", "kill", "exit", "_exit");

INSTANTIATE_TEST_SUITE_P(TwoRanks, Fault, testing::Combine(testing::Values(Place{2, 1}), phases, ways), fault_name);
INSTANTIATE_TEST_SUITE_P(ThreeRanks, Fault,
                         testing::Combine(testing::Values(Place{3, 0}, Place{3, 2}),
                                          testing::Values("data", "backward", "save"), testing::Values("throw")),
                         fault_name);
INSTANTIATE_TEST_SUITE_P(ThreeRanksHearOfIt, Fault,
                         testing::Combine(testing::Values(Place{3, 0}, Place{3, 2}), testing::Values("forward"),
                                          testing::Values("heard")),
                         fault_name);
INSTANTIATE_TEST_SUITE_P(ThreeRanksKilled, Fault,
                         testing::Combine(testing::Values(Place{3, 0}, Place{3, 1}), testing::Values("load", "forward"),
                                          testing::Values("kill")),
                         fault_name);

}  // namespace
}  // namespace annulus
