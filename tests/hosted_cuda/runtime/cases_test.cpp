// Every case with the answers of an independent float64 implementation, on CUDA and NCCL, at 1 to 4 ranks.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/config_file.h"
#include "tests/support/run_devices.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/compare.h"

namespace annulus {
namespace {

struct Split {
  const char* name;
  int ranks = 1;
  int data = 1;  // groups; the other ranks lie along the sequence
  const char* layout = "zigzag";
};

constexpr Split splits[] = {{.name = "OneRank"},
                            {.name = "TwoRanksZigzag", .ranks = 2},
                            {.name = "ThreeRanksContiguous", .ranks = 3, .layout = "contiguous"},
                            {.name = "TwoGroupsOfTwo", .ranks = 4, .data = 2}};

void check_case(const std::filesystem::path& folder, const Split& split, const std::string& dtype,
                const Bounds& bounds) {
  SCOPED_TRACE(folder.filename().string() + ", " + split.name + ", " + dtype);
  const TemporaryDirectory output;
  const std::vector<std::string> words = {"output.directory=" + output.path().string(),
                                          "parallel.data_parallel_size=" + std::to_string(split.data),
                                          "parallel.layout=" + std::string(split.layout),
                                          "debug.save_gradients=true",
                                          "debug.poison=true",
                                          "runtime.device=cuda",
                                          "model.dtype=" + dtype};
  Listener nobody;
  train_on(load_settings(folder / "config.yaml", words), split.ranks, nobody);
  const Deviation largest = worst(compare_with_case(output.path(), folder, bounds));
  EXPECT_LE(largest.ratio, 1) << largest.figure;
}

class HostedCase : public testing::TestWithParam<const char*> {};

TEST_P(HostedCase, HasTheExpectedLossesGradientsAndWeights) {
  const std::filesystem::path folder = std::filesystem::path(CASES_FOLDER) / GetParam();
  for (const Split& split : splits) check_case(folder, split, "float32", float32_bounds);
  check_case(folder, splits[2], "bfloat16", bfloat16_bounds);
}

INSTANTIATE_TEST_SUITE_P(Cases, HostedCase, testing::Values("causal", "packed", "unpacked", "window"));

}  // namespace
}  // namespace annulus
