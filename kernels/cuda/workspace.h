// The scratch that operations on CUDA take, in bytes, by plain arithmetic: the plan asks here on machines without CUDA,
// each operation when it computes. Nothing depends on the GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/narrow.h"

namespace annulus::cuda {

// What cuBLASLt may use for any product, aligned to 256 bytes: its documentation asks for 32 MiB on Hopper, the most of
// any.
inline constexpr int64_t matmul_scratch = int64_t{32} << 20;
inline constexpr int64_t matmul_alignment = 256;
inline constexpr int64_t matmul_workspace = matmul_scratch + matmul_alignment;

// How a long sum is cut into the parts that blocks add up on their own: `parts` parts of `size` items, the last may be
// short.
struct Parts {
  int64_t size = 1, parts = 0;
};

constexpr Parts cut(int64_t items, int64_t smallest, int64_t most_parts) {
  const int64_t size = round_up(std::max<int64_t>(1, ceil_divide(items, most_parts)), smallest);
  return {size, ceil_divide(items, size)};
}

constexpr Parts sum_parts(int64_t elements) {
  return cut(elements, 8192, 512);
}
constexpr Parts norm_parts(int64_t rows) {
  return cut(rows, 32, 256);
}
constexpr Parts head_norm_parts(int64_t heads) {
  return cut(heads, 256, 256);
}  // heads of all rows

constexpr int64_t partial_sums_bytes(const Parts& parts, int64_t width) {
  return parts.parts * width * static_cast<int64_t>(sizeof(double));
}

}  // namespace annulus::cuda
