// metrics.jsonl: one JSON object a step, on disk as soon as the step is done.
#pragma once

#include <filesystem>

#include "runtime/files/file.h"
#include "runtime/run.h"

namespace annulus {

class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& path) : file_(path) {}  // replaces what was there
  void write(const StepReport& report);

 private:
  GrowingFile file_;
};

}  // namespace annulus
