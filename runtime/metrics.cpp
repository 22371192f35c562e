#include "runtime/metrics.h"

#include <nlohmann/json.hpp>

#include "kernels/error.h"

namespace annulus {

MetricsFile::MetricsFile(const std::filesystem::path& path) : path_(path), stream_(path, std::ios::trunc) {
  if (!stream_) throw EnvironmentError(path.string() + ": cannot be written; choose another output.directory");
}

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
  stream_ << line.dump() << '\n' << std::flush;
  if (!stream_) throw MemoryError(path_.string() + ": writing failed; is the disk full?");
}

}  // namespace annulus
