// metrics.jsonl: one JSON object a step, on disk as soon as the step is done.
#pragma once

#include <filesystem>
#include <fstream>

#include "runtime/run.h"

namespace annulus {

class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& path);  // replaces what was there
  void write(const StepReport& report);

 private:
  std::filesystem::path path_;
  std::ofstream stream_;
};

}  // namespace annulus
