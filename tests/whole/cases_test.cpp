// Every case with the answers of an independent float64 implementation, through the real executable under mpirun,
// however the work is split.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/whole/compare.h"
#include "tests/whole/process.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

struct Split {
  const char* name;
  int ranks = 1;
  int data = 1;  // groups; the other ranks lie along the sequence
  const char* layout = "zigzag";
  int micro_batch = 1;
  bool poison = false;
  bool own_mpirun = false;  // rather than --ranks

  friend std::ostream& operator<<(std::ostream& stream, const Split& split) { return stream << split.name; }
};

const std::vector<Split> splits = {
    {.name = "OneRank"},
    {.name = "OneRankTwoSequencesAtOnce", .micro_batch = 2, .poison = true},
    {.name = "TwoRanksZigzag", .ranks = 2, .own_mpirun = true},
    {.name = "TwoRanksContiguousTwoSequencesAtOnce",
     .ranks = 2,
     .layout = "contiguous",
     .micro_batch = 2,
     .poison = true},
    {.name = "TwoGroups", .ranks = 2, .data = 2},
    {.name = "ThreeRanksZigzag", .ranks = 3, .poison = true},
    {.name = "ThreeRanksContiguousTwoSequencesAtOnce", .ranks = 3, .layout = "contiguous", .micro_batch = 2},
    {.name = "ThreeGroups", .ranks = 3, .data = 3, .poison = true},
    {.name = "FourRanksZigzagTwoSequencesAtOnce", .ranks = 4, .micro_batch = 2, .poison = true},
    {.name = "FourRanksContiguous", .ranks = 4, .layout = "contiguous"},
    {.name = "TwoGroupsOfTwoZigzag", .ranks = 4, .data = 2, .poison = true, .own_mpirun = true},
    {.name = "TwoGroupsOfTwoContiguousTwoSequencesAtOnce",
     .ranks = 4,
     .data = 2,
     .layout = "contiguous",
     .micro_batch = 2},
    {.name = "FourGroups", .ranks = 4, .data = 4},
};

std::vector<fs::path> case_folders() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(CASES_FOLDER)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

Words training_words(const fs::path& folder, const Split& split, const fs::path& output) {
  return {"train",
          (folder / "config.yaml").string(),
          "output.directory=" + output.string(),
          "parallel.data_parallel_size=" + std::to_string(split.data),
          "parallel.context_parallel_size=" + std::to_string(split.ranks / split.data),
          "parallel.layout=" + std::string(split.layout),
          "train.micro_batch_size=" + std::to_string(split.micro_batch),
          "debug.save_gradients=true",
          "debug.poison=" + std::string(split.poison ? "true" : "false"),
          "runtime.device=cpu",
          "runtime.threads=1"};
}

Finished train_split(const Split& split, Words words) {
  if (split.own_mpirun) return run_program(under_mpirun(split.ranks, ANNULUS_EXECUTABLE, words));
  if (split.ranks > 1) words.insert(words.end(), {"--ranks", std::to_string(split.ranks)});
  return run_annulus(words);
}

void expect_within(const std::vector<Deviation>& deviations) {
  const Deviation largest = worst(deviations);
  EXPECT_LE(largest.ratio, 1) << "the worst of " << deviations.size() << " figures is the " << largest.figure
                              << ": its error is " << largest.ratio << " times its bound";
  testing::Test::RecordProperty("worst_figure", largest.figure);
  testing::Test::RecordProperty("worst_ratio", std::to_string(largest.ratio));
}

class Case : public testing::TestWithParam<std::tuple<fs::path, Split>> {};

std::string case_name(const testing::TestParamInfo<Case::ParamType>& info) {
  return std::get<0>(info.param).filename().string() + "_" + std::get<1>(info.param).name;
}

TEST_P(Case, HasTheExpectedLossesGradientsAndWeightsInFloat32) {
  const auto& [folder, split] = GetParam();
  const TemporaryDirectory output;
  const Finished finished = train_split(split, training_words(folder, split, output.path()));
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  expect_within(compare_with_case(output.path(), folder, float32_bounds));
}

INSTANTIATE_TEST_SUITE_P(Whole, Case, testing::Combine(testing::ValuesIn(case_folders()), testing::ValuesIn(splits)),
                         case_name);

class CaseInBfloat16 : public Case {};

TEST_P(CaseInBfloat16, HasTheExpectedLossesAndGradients) {
  const auto& [folder, split] = GetParam();
  const TemporaryDirectory output;
  Words words = training_words(folder, split, output.path());
  words.emplace_back("model.dtype=bfloat16");
  const Finished finished = train_split(split, words);
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  expect_within(compare_with_case(output.path(), folder, bfloat16_bounds));
}

INSTANTIATE_TEST_SUITE_P(
    Whole, CaseInBfloat16,
    testing::Combine(
        testing::ValuesIn(case_folders()),
        testing::Values(Split{.name = "OneRank"}, Split{.name = "ThreeRanksZigzag", .ranks = 3},
                        Split{.name = "TwoGroupsOfTwoContiguous", .ranks = 4, .data = 2, .layout = "contiguous"})),
    case_name);

}  // namespace
}  // namespace annulus
