#include "tests/whole/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/tensors.h"
#include "tests/whole/metrics.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double infinity = std::numeric_limits<double>::infinity();

double equal(bool is_equal) {
  return is_equal ? 0 : infinity;
}

double relative_error(double value, double expected) {
  return value == expected ? 0 : std::abs(value - expected) / std::abs(expected);
}

double norm(const HostTensor& tensor) {
  double sum = 0;
  for (const double value : tensor.values) sum += value * value;
  return std::sqrt(sum);
}

double distance(const HostTensor& a, const HostTensor& b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double difference = static_cast<double>(a.values[i]) - b.values[i];
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

double whole_norm(const HostTensors& tensors) {
  double sum = 0;
  for (const auto& [name, tensor] : tensors) sum += norm(tensor) * norm(tensor);
  return std::sqrt(sum);
}

bool is_zero(const HostTensor& gradient, double whole) {
  return norm(gradient) < 1e-7 * whole;
}

bool same_names_and_shapes(const HostTensors& a, const HostTensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.shape == y.second.shape;
  });
}

}  // namespace

std::vector<Deviation> compare_metrics(const fs::path& metrics, const fs::path& expected, const Bounds& bounds) {
  const std::vector<json> steps = read_json_lines(metrics), expected_steps = read_json_lines(expected);
  std::vector<Deviation> deviations = {{"number of steps", equal(steps.size() == expected_steps.size())}};
  for (size_t i = 0; i < std::min(steps.size(), expected_steps.size()); ++i) {
    const json &got = steps[i], &want = expected_steps[i];
    const auto error = [&](const char* key) { return relative_error(got.at(key), want.at(key)); };
    const std::string step = " of step " + std::to_string(i + 1);
    deviations.push_back({"number" + step, equal(got.at("step") == want.at("step"))});
    deviations.push_back({"loss" + step, error("loss") / bounds.loss});
    deviations.push_back({"grad_norm" + step, error("grad_norm") / bounds.grad_norm});
    deviations.push_back({"learning_rate" + step, error("learning_rate") / 1e-12});
    deviations.push_back({"label_tokens" + step, equal(got.at("label_tokens") == want.at("label_tokens"))});
  }
  return deviations;
}

std::vector<Deviation> compare_gradients(const fs::path& gradient, const fs::path& expected, const Bounds& bounds) {
  const HostTensors got = read_tensors(gradient), want = read_tensors(expected);
  if (!same_names_and_shapes(got, want)) return {{"names and shapes in " + gradient.string(), infinity}};
  const double whole = whole_norm(want);
  std::vector<Deviation> deviations;
  for (const auto& [name, tensor] : want) {
    const bool zero = is_zero(tensor, whole);
    const double ratio =
        zero ? norm(got.at(name)) / (1e-6 * whole) : distance(got.at(name), tensor) / (bounds.gradient * norm(tensor));
    deviations.push_back({(zero ? "size of the zero gradient of " : "gradient of ") + name, ratio});
  }
  return deviations;
}

std::vector<Deviation> compare_weights(const fs::path& weights, const fs::path& expected, const fs::path& start,
                                       const fs::path& gradient, const Bounds& bounds) {
  const HostTensors got = read_tensors(weights), want = read_tensors(expected), before = read_tensors(start),
                    gradients = read_tensors(gradient);
  if (!same_names_and_shapes(got, want)) return {{"names and shapes in " + weights.string(), infinity}};
  const double whole = whole_norm(gradients);
  std::vector<Deviation> deviations;
  for (const auto& [name, tensor] : want) {
    if (is_zero(gradients.at(name), whole)) continue;
    const double change = distance(tensor, before.at(name));
    deviations.push_back({"final " + name, distance(got.at(name), tensor) / (bounds.weights * change)});
  }
  return deviations;
}

std::vector<Deviation> compare_with_case(const fs::path& output, const fs::path& folder, const Bounds& bounds) {
  std::vector<Deviation> all = compare_metrics(output / "metrics.jsonl", folder / "expected.jsonl", bounds);
  const auto add = [&](const std::vector<Deviation>& more) { all.insert(all.end(), more.begin(), more.end()); };
  const fs::path gradient = folder / "expected_gradient.safetensors";
  add(compare_gradients(output / "gradient.safetensors", gradient, bounds));
  if (bounds.weights > 0) {
    add(compare_weights(output / "model" / "model.safetensors", folder / "expected_model.safetensors",
                        folder / "model" / "model.safetensors", gradient, bounds));
  }
  return all;
}

Deviation worst(const std::vector<Deviation>& deviations) {
  const auto size = [](const Deviation& deviation) { return std::isnan(deviation.ratio) ? infinity : deviation.ratio; };
  return *std::max_element(deviations.begin(), deviations.end(),
                           [&](const auto& a, const auto& b) { return size(a) < size(b); });
}

}  // namespace annulus
