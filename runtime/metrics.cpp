#include "runtime/metrics.h"

#include <nlohmann/json.hpp>

namespace annulus {

void MetricsFile::write(const StepReport& report) {
  const nlohmann::ordered_json line = {{"step", report.step},
                                       {"loss", report.loss},
                                       {"grad_norm", report.grad_norm},
                                       {"learning_rate", report.learning_rate},
                                       {"label_tokens", report.label_tokens},
                                       {"tokens", report.tokens},
                                       {"seconds", report.seconds},
                                       {"tokens_per_second", static_cast<double>(report.tokens) / report.seconds},
                                       {"peak_bytes", report.peak_bytes}};
  file_.append(line.dump() + '\n');
}

}  // namespace annulus
