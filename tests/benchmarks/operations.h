// The operations of a device, in the shapes of Qwen3-0.6B, for a table to measure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/benchmarks/table.h"

namespace annulus {

// Cubic products: the roof of everything that counts floating-point operations.
void add_products(Table& table, DType dtype, const std::vector<int64_t>& sizes);

// "causal", "full", or "window", in which a query sees 1,024 keys.
struct Mask {
  std::string name;
  [[nodiscard]] KeyRanges keys(int64_t row, int64_t rows) const;
};

// Forward and backward, backward with δ, over sequences of `tokens`. Visible pairs count: 4·head_dim multiplications
// and additions a pair and head forward, 10·head_dim backward.
void add_attention(Table& table, DType dtype, const Mask& mask, const std::vector<int64_t>& tokens);

// A copy, the roof of everything that counts bytes, and every other operation, over `rows` rows. What an operation has
// to read and to write counts, each once.
void add_passes(Table& table, DType dtype, const std::vector<int64_t>& rows);

}  // namespace annulus
