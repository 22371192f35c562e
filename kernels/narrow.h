// Sizes are 64-bit everywhere; this is the one way to a smaller integer, at the edge of a library that asks for one.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "kernels/error.h"

namespace annulus {

template <std::integral To>
To narrow(std::integral auto value, SourceLocation where = SourceLocation::current()) {
  if (!std::in_range<To>(value)) throw InternalError("a size does not fit the integer a library takes", where);
  return static_cast<To>(value);
}

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_divide(a, b) * b; }

}  // namespace annulus
