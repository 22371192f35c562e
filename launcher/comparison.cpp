#include "launcher/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/error.h"

namespace annulus {
namespace {

double median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// More than this cannot come from sharing out the work.
constexpr double most_efficiency = 1.2;

// Σ figure(step) a second, over the steps whose time counts; median of the runs.
template <class Figure>
double per_second(const MeasuredCount& count, Figure figure) {
  std::vector<double> rates;
  for (const auto& run : count.runs) {
    double total = 0, seconds = 0;
    for (size_t i = 1; i < run.size(); ++i) total += figure(run[i]), seconds += run[i].seconds;
    rates.push_back(total / seconds);
  }
  return median(std::move(rates));
}

// Of the rank with the most.
double exposed_seconds(const StepReport& step) {
  double most = 0;
  for (const StepReport::Seconds& rank : step.ranks) most = std::max(most, rank.exposed);
  return most;
}

// The largest relative difference of a figure between any run and the baseline's first.
double difference(const MeasuredCount& count, const MeasuredCount& baseline, double StepReport::*figure) {
  const std::vector<StepReport>& expected = baseline.runs.front();
  double most = 0;
  for (const auto& run : count.runs) {
    require(run.size() == expected.size(), "runs that are compared have the same steps");
    for (size_t i = 0; i < run.size(); ++i) {
      const double right = expected[i].*figure;
      if (run[i].*figure != right) most = std::max(most, std::abs(run[i].*figure - right) / std::abs(right));
    }
  }
  return most;
}

ComparedCount figures_of(const MeasuredCount& count, const MeasuredCount& baseline) {
  ComparedCount result = {.ranks = count.ranks, .processors = count.processors, .shared = count.shared};
  result.tokens_per_second = per_second(count, [](const StepReport& step) { return static_cast<double>(step.tokens); });
  result.exposed = per_second(count, exposed_seconds);
  for (const auto& run : count.runs) {
    for (const StepReport& step : run) result.peak_bytes = std::max(result.peak_bytes, step.peak_bytes);
  }
  result.loss_difference = difference(count, baseline, &StepReport::loss);
  result.grad_norm_difference = difference(count, baseline, &StepReport::grad_norm);
  return result;
}

}  // namespace

std::vector<ComparedCount> compare(const std::vector<MeasuredCount>& counts) {
  std::vector<ComparedCount> results;
  for (const MeasuredCount& count : counts) {
    ComparedCount result = figures_of(count, counts.front());
    if (!results.empty()) {
      const ComparedCount& baseline = results.front();
      result.speed_up = result.tokens_per_second / baseline.tokens_per_second;
      result.efficiency = result.speed_up * baseline.processors / result.processors;
    }
    results.push_back(result);
  }
  return results;
}

std::string as_table(const std::vector<ComparedCount>& counts, const std::string& processors) {
  std::string text =
      fmt::format("{:>5}  {:>5}  {:>12}  {:>8}  {:>10}  {:>7}  {:>16}  {:>9}  {:>9}\n", "ranks", processors, "tokens/s",
                  "speed-up", "efficiency", "exposed", "peak bytes", "loss", "grad norm");
  std::string shared, too_good;
  for (const ComparedCount& count : counts) {
    text += fmt::format("{:>5}  {:>5}  {:>12.1f}  {:>8.3f}  {:>9.1f}%  {:>6.2f}%  {:>16}  {:>9.1e}  {:>9.1e}{}\n",
                        count.ranks, count.processors, count.tokens_per_second, count.speed_up, 100 * count.efficiency,
                        100 * count.exposed, count.peak_bytes, count.loss_difference, count.grad_norm_difference,
                        count.shared ? " *" : "");
    if (count.shared) {
      shared =
          fmt::format("* these ranks share {}: their speed says nothing about ranks that have their own\n", processors);
    }
    if (count.efficiency > most_efficiency) {
      too_good = fmt::format(
          "The efficiency is too good to be true: something held the first line's {} ranks up, as other programs on "
          "the\n"
          "same {} do. Repeat this when nothing else runs.\n",
          counts.front().ranks, processors);
    }
  }
  return text + shared + too_good +
         "exposed: time in communication that nothing hid; peak bytes: of the largest rank; loss, grad norm: largest\n"
         "relative difference from the first line, over all steps\n";
}

std::string as_json(const std::vector<ComparedCount>& counts, const std::string& processors) {
  nlohmann::ordered_json lines = nlohmann::json::array();
  for (const ComparedCount& count : counts) {
    lines.push_back({{"ranks", count.ranks},
                     {processors, count.processors},
                     {"shared", count.shared},
                     {"tokens_per_second", count.tokens_per_second},
                     {"speed_up", count.speed_up},
                     {"efficiency", count.efficiency},
                     {"exposed", count.exposed},
                     {"peak_bytes", count.peak_bytes},
                     {"loss_difference", count.loss_difference},
                     {"grad_norm_difference", count.grad_norm_difference}});
  }
  return lines.dump(2) + '\n';
}

}  // namespace annulus
