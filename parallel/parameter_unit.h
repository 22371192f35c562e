// A parameter unit: the parameters that are gathered, used and dropped together, laid out in one flat buffer that is
// cut evenly over the ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace annulus {

struct Parameter {
  std::string name;  // as Hugging Face spells it
  Shape shape;
  bool decayed = true;    // whether weight decay applies
  bool adjacent = false;  // starts right where the parameter before it ends, so that both can be used as one matrix
  int64_t index = 0;      // in model order, counted over all units
  int64_t offset = 0;     // first element in the unit's flat buffer
  [[nodiscard]] int64_t elements() const { return shape.elements(); }
};

class ParameterUnit {
 public:
  // Appends; a parameter that is not adjacent starts on a 64-byte boundary in every dtype.
  void add(Parameter parameter);

  // Numbers the parameters from `first` on; returns the number after the last.
  int64_t number_from(int64_t first);

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  [[nodiscard]] int64_t elements() const { return elements_; }        // of the flat buffer, gaps included
  [[nodiscard]] int64_t shard_elements(int ranks) const;              // of one rank's part of it, padding included
  [[nodiscard]] View view(const View& flat, size_t parameter) const;  // a parameter in a whole flat buffer
  [[nodiscard]] View joined_view(const View& flat, size_t upper, size_t lower) const;  // two adjacent matrices as one

 private:
  std::vector<Parameter> parameters_;
  int64_t elements_ = 0;
};

// Elements [first, first + count) of a parameter, which lie at `offset` of a shard.
struct ParameterPart {
  const Parameter* parameter = nullptr;
  int64_t first = 0, count = 0, offset = 0;
};

// What of the unit's parameters lies in a rank's shard, in order.
std::vector<ParameterPart> parts_in_shard(const ParameterUnit& unit, int rank, int ranks);

}  // namespace annulus
