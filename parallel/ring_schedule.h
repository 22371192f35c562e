// Who sends which keys to whom, for one mask. At step d a rank works on the keys of the context rank d places before it
// and receives exactly the rows that some query of its own sees; every rank derives the same schedule from the same
// mask.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "parallel/sequence_layout.h"

namespace annulus {

struct RingStep {
  int source = 0;              // context rank whose keys arrive: rank − d
  int target = 0;              // context rank that needs keys from here: rank + d
  std::vector<Chunk> receive;  // global rows of the source that are needed here
  std::vector<Chunk> send;     // global rows of this rank that the target needs
};

class RingSchedule {
 public:
  // `mask`: the ranges of all global rows.
  RingSchedule(const SequenceLayout& layout, std::span<const KeyRanges> mask, int rank);

  [[nodiscard]] std::span<const Chunk> own() const { return own_; }         // this rank's chunks, the keys of step 0
  [[nodiscard]] std::span<const RingStep> steps() const { return steps_; }  // steps 1 … ranks−1, in order
  [[nodiscard]] int64_t local_row(int64_t global_row) const;                // of a row of this rank

 private:
  std::vector<Chunk> own_;
  std::vector<RingStep> steps_;
};

// The rows that any row of `rows` sees, as sorted disjoint chunks.
std::vector<Chunk> visible_keys(std::span<const Chunk> rows, std::span<const KeyRanges> mask);

// How many rows of one other rank a rank needs at most, whichever it is and however documents are packed, where a query
// sees `window` keys, itself included (0: all before it).
int64_t most_passing_rows(const SequenceLayout& layout, int64_t window);

// What two sorted disjoint lists have in common.
std::vector<Chunk> intersection(std::span<const Chunk> a, std::span<const Chunk> b);

}  // namespace annulus
