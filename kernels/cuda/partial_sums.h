// The sum of a weight's gradient over many rows: blocks add up parts of them, as kernels/cpu/row_sums.h does, few rows
// in float32 and those sums in float64; then the parts are added in their order.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/workspace.h"
#include "kernels/tensor.h"

namespace annulus::cuda {

inline constexpr int rows_in_float32 = 32;

// total (width) float32 += Σ over parts of partials (parts, width)
void add_partial_rows(const View& total, const double* partials, const Parts& parts, cudaStream_t stream);

}  // namespace annulus::cuda
