// Runs at several rank counts, side by side: what `annulus compare` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/run.h"

namespace annulus {

// All runs of one rank count. The first step of each warms up: its time is not counted.
struct MeasuredCount {
  int ranks = 1;
  int processors = 1;   // cores or GPUs the ranks had together
  bool shared = false;  // there were fewer than the ranks' threads
  std::vector<std::vector<StepReport>> runs = {};
};

struct ComparedCount {
  int ranks = 1;
  int processors = 1;
  bool shared = false;
  double tokens_per_second = 0;     // median of the runs
  double speed_up = 1;              // over the baseline
  double efficiency = 1;            // speed-up per processor, of the baseline's
  double exposed = 0;               // share of the time in communication that nothing hid, on the worst rank; median
  int64_t peak_bytes = 0;           // of the largest rank
  double loss_difference = 0;       // from the baseline: the largest of all steps and runs, relative
  double grad_norm_difference = 0;  // the same
};

// The first count is the baseline. All runs have the same steps, two at least.
std::vector<ComparedCount> compare(const std::vector<MeasuredCount>& counts);

// What the processors are called: "cores" or "GPUs".
std::string as_table(const std::vector<ComparedCount>& counts, const std::string& processors);
std::string as_json(const std::vector<ComparedCount>& counts, const std::string& processors);

}  // namespace annulus
