// The comparison with a case's answers sees every error just outside the bounds, and none just inside.
#include "tests/whole/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"
#include "tests/whole/metrics.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

const fs::path folder = fs::path(CASES_FOLDER) / "causal";

// The expected results as if a run had left them.
class Comparison : public testing::Test {
 protected:
  Comparison() {
    fs::create_directories(output_ / "model");
    fs::copy(folder / "expected.jsonl", output_ / "metrics.jsonl");
    fs::copy(folder / "expected_gradient.safetensors", gradient());
    fs::copy(folder / "expected_model.safetensors", model());
  }

  void change_metrics(const std::function<void(nlohmann::json&)>& change) {
    std::vector<nlohmann::json> steps = read_json_lines(folder / "expected.jsonl");
    change(steps[2]);
    std::ofstream file(output_ / "metrics.jsonl");
    for (const nlohmann::json& step : steps) file << step.dump() << '\n';
  }

  // Adds `by` times the L2 norm of `scale`'s tensor to one element of a tensor of the file.
  static void change_tensor(const fs::path& path, const std::string& name, double by, const HostTensors& scale) {
    HostTensors tensors = read_tensors(path);
    double squares = 0;
    for (const double value : scale.at(name).values) squares += value * value;
    float& element = tensors.at(name).values.at(5);
    element = static_cast<float>(element + by * std::sqrt(squares));
    write_tensors(path, tensors);
  }

  [[nodiscard]] fs::path gradient() const { return output_ / "gradient.safetensors"; }
  [[nodiscard]] fs::path model() const { return output_ / "model" / "model.safetensors"; }
  [[nodiscard]] Deviation result() const { return worst(compare_with_case(output_.path(), folder, float32_bounds)); }

  TemporaryDirectory output_;
};

TEST_F(Comparison, FindsNothingWhereResultsAreThoseExpected) {
  EXPECT_EQ(result().ratio, 0);
}

TEST_F(Comparison, MeasuresLossAndNormAgainstTheirBounds) {
  change_metrics([](nlohmann::json& step) { step["loss"] = step["loss"].get<double>() * (1 + 3e-6); });
  EXPECT_EQ(result().figure, "loss of step 3");
  EXPECT_NEAR(result().ratio, 1.5, 1e-6);
  change_metrics([](nlohmann::json& step) { step["grad_norm"] = step["grad_norm"].get<double>() * (1 - 5e-6); });
  EXPECT_EQ(result().figure, "grad_norm of step 3");
  EXPECT_NEAR(result().ratio, 0.5, 1e-6);
}

TEST_F(Comparison, WantsCountsAndLearningRateToBeRight) {
  change_metrics([](nlohmann::json& step) { step["label_tokens"] = 189; });
  EXPECT_GT(result().ratio, 1);
  change_metrics(
      [](nlohmann::json& step) { step["learning_rate"] = step["learning_rate"].get<double>() * (1 + 1e-9); });
  EXPECT_GT(result().ratio, 1);
}

TEST_F(Comparison, MeasuresEachGradientAgainstItsOwnNorm) {
  const std::string smallest = "model.layers.1.self_attn.k_norm.weight";
  change_tensor(gradient(), smallest, 3e-5, read_tensors(gradient()));
  EXPECT_EQ(result().figure, "gradient of " + smallest);
  EXPECT_NEAR(result().ratio, 1.5, 0.01);  // float32 rounds the change
}

TEST_F(Comparison, MeasuresEachWeightAgainstItsOwnChange) {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const HostTensors start = read_tensors(folder / "model" / "model.safetensors");
  HostTensors change = read_tensors(model());
  for (size_t i = 0; i < change.at(name).values.size(); ++i) change.at(name).values[i] -= start.at(name).values[i];
  change_tensor(model(), name, 2e-3, change);
  EXPECT_EQ(result().figure, "final " + name);
  EXPECT_NEAR(result().ratio, 2, 0.01);
}

TEST_F(Comparison, TakesNaNForTheWorst) {
  change_tensor(gradient(), "model.norm.weight", std::numeric_limits<double>::quiet_NaN(), read_tensors(gradient()));
  EXPECT_EQ(result().figure, "gradient of model.norm.weight");
  EXPECT_FALSE(result().ratio <= 1);
}

TEST_F(Comparison, WantsTheTensorsExpected) {
  HostTensors tensors = read_tensors(gradient());
  tensors.erase("model.norm.weight");
  write_tensors(gradient(), tensors);
  EXPECT_GT(result().ratio, 1);
}

TEST_F(Comparison, MeasuresTheSizeOfAGradientThatIsZero) {
  const fs::path expected = output_ / "expected.safetensors";
  write_tensors(expected, {{"zero", {{2}, {0, 1e-9F}}}, {"other", {{2}, {3, 4}}}});
  write_tensors(gradient(), {{"zero", {{2}, {0, 1e-5F}}}, {"other", {{2}, {3, 4}}}});
  const Deviation deviation = worst(compare_gradients(gradient(), expected, float32_bounds));
  EXPECT_EQ(deviation.figure, "size of the zero gradient of zero");
  EXPECT_NEAR(deviation.ratio, 2, 1e-6);  // 1e-5 of 1e-6 times 5
}

}  // namespace
}  // namespace annulus
