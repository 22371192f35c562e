// Whether a run's results are those that a case expects, by the bounds that every case has.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace annulus {

// How far a figure may be from the expected one. Loss and norm: relative; tensors: the L2 norm of the difference
// relative to that of the expected gradient, or to that of the expected change of the weights.
struct Bounds {
  double loss = 0, grad_norm = 0, gradient = 0, weights = 0;
};

// The bounds of the cases. A plain float32 implementation stays ten times inside the first, a careful one in bfloat16
// two to three times inside the second, where weights are compared with nothing: their rounding is larger than their
// change.
inline constexpr Bounds float32_bounds{.loss = 2e-6, .grad_norm = 1e-5, .gradient = 2e-5, .weights = 1e-3};
inline constexpr Bounds bfloat16_bounds{.loss = 1e-3, .grad_norm = 1e-2, .gradient = 6e-2, .weights = 0};

// An error divided by what it may be at most: up to 1 is right. What must be equal gives 0 or infinity.
struct Deviation {
  std::string figure;  // "loss of step 3", "gradient of model.norm.weight"
  double ratio = 0;
};

// metrics.jsonl against the steps of expected.jsonl.
std::vector<Deviation> compare_metrics(const std::filesystem::path& metrics, const std::filesystem::path& expected,
                                       const Bounds& bounds);

// Gradients tensor by tensor. A tensor whose true gradient is zero, below 1e-7 of the whole norm, may be 1e-6 of that.
std::vector<Deviation> compare_gradients(const std::filesystem::path& gradient, const std::filesystem::path& expected,
                                         const Bounds& bounds);

// Weights tensor by tensor; those without a true gradient in `gradient`, whose change is rounding, are left out.
std::vector<Deviation> compare_weights(const std::filesystem::path& weights, const std::filesystem::path& expected,
                                       const std::filesystem::path& start, const std::filesystem::path& gradient,
                                       const Bounds& bounds);

// All of it for a case's folder and the output directory of a run with debug.save_gradients.
std::vector<Deviation> compare_with_case(const std::filesystem::path& output, const std::filesystem::path& folder,
                                         const Bounds& bounds);

// The largest ratio; NaN counts as the largest of all.
Deviation worst(const std::vector<Deviation>& deviations);

}  // namespace annulus
