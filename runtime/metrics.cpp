#include "runtime/metrics.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/error.h"

namespace annulus {
namespace {

StepReport step_of(const nlohmann::json& line) {
  StepReport report = {.step = line.at("step"),
                       .loss = line.at("loss"),
                       .grad_norm = line.at("grad_norm"),
                       .learning_rate = line.at("learning_rate"),
                       .label_tokens = line.at("label_tokens"),
                       .tokens = line.at("tokens"),
                       .seconds = line.at("seconds"),
                       .peak_bytes = line.at("peak_bytes")};
  const nlohmann::json& attention = line.at("attention_seconds");
  for (size_t rank = 0; rank < attention.size(); ++rank) {
    report.ranks.push_back({.attention = attention.at(rank),
                            .compute = line.at("compute_seconds").at(rank),
                            .exposed = line.at("exposed_seconds").at(rank)});
  }
  return report;
}

}  // namespace

void MetricsFile::write(const StepReport& report) {
  const auto of_ranks = [&](double StepReport::Seconds::*part) {
    std::vector<double> seconds;
    for (const StepReport::Seconds& rank : report.ranks) seconds.push_back(rank.*part);
    return seconds;
  };
  const nlohmann::ordered_json line = {{"step", report.step},
                                       {"loss", report.loss},
                                       {"grad_norm", report.grad_norm},
                                       {"learning_rate", report.learning_rate},
                                       {"label_tokens", report.label_tokens},
                                       {"tokens", report.tokens},
                                       {"seconds", report.seconds},
                                       {"tokens_per_second", static_cast<double>(report.tokens) / report.seconds},
                                       {"peak_bytes", report.peak_bytes},
                                       {"attention_seconds", of_ranks(&StepReport::Seconds::attention)},
                                       {"compute_seconds", of_ranks(&StepReport::Seconds::compute)},
                                       {"exposed_seconds", of_ranks(&StepReport::Seconds::exposed)}};
  file_.append(line.dump() + '\n');
}

std::vector<StepReport> read_metrics(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<StepReport> steps;
  for (std::string line; std::getline(file, line);) {
    try {
      steps.push_back(step_of(nlohmann::json::parse(line)));
    } catch (const nlohmann::json::exception& error) {
      throw DataError(
          fmt::format("'{}' line {} is no step of a run: {}", path.string(), steps.size() + 1, error.what()));
    }
  }
  if (steps.empty()) throw DataError(fmt::format("'{}' has no step", path.string()));
  return steps;
}

}  // namespace annulus
