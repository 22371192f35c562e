#include "parallel/parameter_unit.h"

#include <algorithm>

#include "kernels/narrow.h"

namespace annulus {

constexpr int64_t alignment = 32;  // elements: 64 bytes of bfloat16

void ParameterUnit::add(Parameter parameter) {
  parameter.offset = parameter.adjacent ? elements_ : round_up(elements_, alignment);
  elements_ = parameter.offset + parameter.elements();
  parameters_.push_back(std::move(parameter));
}

int64_t ParameterUnit::number_from(int64_t first) {
  for (Parameter& parameter : parameters_) parameter.index = first++;
  return first;
}

int64_t ParameterUnit::shard_elements(int ranks) const {
  return round_up(ceil_divide(elements_, ranks), alignment);
}

View ParameterUnit::view(const View& flat, size_t parameter) const {
  const Parameter& found = parameters_.at(parameter);
  return flat.slice(found.offset, found.offset + found.elements()).reshaped(found.shape);
}

View ParameterUnit::joined_view(const View& flat, size_t upper, size_t lower) const {
  const Parameter& first = parameters_.at(upper);
  const Parameter& second = parameters_.at(lower);
  require(second.offset == first.offset + first.elements() && first.shape[1] == second.shape[1],
          "two parameters that do not lie one above the other are used as one matrix");
  return flat.slice(first.offset, second.offset + second.elements())
      .reshaped({first.shape[0] + second.shape[0], first.shape[1]});
}

std::vector<ParameterPart> parts_in_shard(const ParameterUnit& unit, int rank, int ranks) {
  const int64_t begin = rank * unit.shard_elements(ranks);
  const int64_t end = begin + unit.shard_elements(ranks);
  std::vector<ParameterPart> parts;
  for (const Parameter& parameter : unit.parameters()) {
    const int64_t first = std::max(begin, parameter.offset);
    const int64_t last = std::min(end, parameter.offset + parameter.elements());
    if (first < last) parts.push_back({&parameter, first - parameter.offset, last - first, first - begin});
  }
  return parts;
}

}  // namespace annulus
