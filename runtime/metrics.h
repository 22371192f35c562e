// metrics.jsonl: one JSON object a step, on disk as soon as the step is done; and read again.
#pragma once

#include <filesystem>
#include <vector>

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

// What was written; `steps` is unknown, and 0. Throws DataError naming the file and the line that is no step, or the
// file where there is none.
std::vector<StepReport> read_metrics(const std::filesystem::path& path);

}  // namespace annulus
