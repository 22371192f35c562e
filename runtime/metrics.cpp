#include "runtime/metrics.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace annulus {

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

}  // namespace annulus
