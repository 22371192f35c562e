// Whole runs with everything under way at once: keys around the ring, weights and gradients between ranks, and all that
// may leave the device on its way there and back. Small, so that every seed of the schedule can repeat them.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "tests/support/run_devices.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"
#include "tests/whole/compare.h"

namespace annulus {
namespace {

// Two layers, so that one is computed while the other comes or leaves; a tied embedding, so that a gradient is added to
// what was there; two steps, so that weights are gathered that have changed.
class Overlap : public testing::TestWithParam<int> {
 protected:
  Overlap() {
    const TinyModel model{.hidden = 16, .intermediate = 24, .heads = 1, .kv_heads = 1, .head_dim = 8, .vocabulary = 23};
    write_model(folder_ / "source", model, 3);
    write_documents(folder_ / "documents.jsonl", random_documents(std::vector<int64_t>{50, 30}, model.vocabulary, 5));
    settings_.model = {.path = folder_ / "source", .dtype = DType::float32};
    settings_.data = {.train = folder_ / "documents.jsonl", .sequence_length = 24};
    settings_.optimizer.learning_rate = 1e-3;
    settings_.optimizer.eps = 1e-6;
    settings_.train = {.steps = 2, .global_batch_size = 1};
    settings_.runtime.device = run_device();
    settings_.debug.save_gradients = true;
  }

  std::filesystem::path train(int ranks, Place place, bool poison) {
    settings_.memory = {.recompute = Recompute::keep_attention,
                        .mlp_tile = 0,
                        .logits_tile = 0,
                        .offload_checkpoints = place,
                        .offload_gradients = place,
                        .offload_optimizer = place,
                        .offload_parameters = place};
    settings_.debug.poison = poison;
    settings_.output.directory = folder_ / ("run" + std::to_string(runs_++));
    Listener nobody;
    train_on(settings_, ranks, nobody);
    return settings_.output.directory;
  }

  void expect_same_numbers(const std::filesystem::path& run, const std::filesystem::path& expected) {
    const std::filesystem::path gradient = "gradient.safetensors", weights = "model/model.safetensors";
    const auto check = [](const std::vector<Deviation>& deviations) {
      const Deviation largest = worst(deviations);
      EXPECT_LE(largest.ratio, 1) << largest.figure;
    };
    check(compare_metrics(run / "metrics.jsonl", expected / "metrics.jsonl", float32_bounds));
    check(compare_gradients(run / gradient, expected / gradient, float32_bounds));
    check(compare_weights(run / weights, expected / weights, folder_ / "source" / "model.safetensors",
                          expected / gradient, float32_bounds));
  }

  TemporaryDirectory folder_;
  Settings settings_;
  int runs_ = 0;
};

// Poison reports what is released under way, but waits for the device in between, which orders what nothing else may.
TEST_P(Overlap, ChangesNoNumber) {
  const std::filesystem::path expected = train(1, Place::device, /*poison=*/false);
  for (const Place place : {Place::device, Place::host, Place::disk}) {
    SCOPED_TRACE(static_cast<int>(place));
    expect_same_numbers(train(GetParam(), place, /*poison=*/false), expected);
  }
  SCOPED_TRACE("poisoned");
  expect_same_numbers(train(GetParam(), Place::host, /*poison=*/true), expected);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Overlap, testing::Values(1, 2, 3));

}  // namespace
}  // namespace annulus
