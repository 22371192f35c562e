// How long sequences could be.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan.h"

namespace annulus {

// Lengths are tried up to this, or 16 times the run's own if that is more.
inline constexpr int64_t longest_planned = int64_t{1} << 20;

struct LongestSequence {
  int64_t length = 0;    // 0: not even the shortest fits
  bool limited = false;  // by how far is looked, and not by the budget
  std::string bound;     // what a longer one needs most: the name of a purpose, "host memory" or "disk"
};

// The longest data.sequence_length, with everything else as it is, for which some rule of the ladder keeps every rank
// within `budget`: that length fits, one more does not.
LongestSequence longest_sequence(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads,
                                 const Budget& budget);

}  // namespace annulus
