#include "kernels/cuda/partial_sums.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

namespace annulus::cuda {
namespace {

// A thread for each column: there are too few of them to let one have two.
__global__ void add_partial_rows_kernel(float* total, const double* partials, int64_t parts, int64_t width) {
  const int64_t column = block_index() * block_threads() + thread_index();
  if (column >= width) return;
  double sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += partials[part * width + column];
  total[column] = static_cast<float>(total[column] + sum);
}

}  // namespace

void add_partial_rows(const View& total, const double* partials, const Parts& parts, cudaStream_t stream) {
  const int64_t width = total.elements();
  launch(add_partial_rows_kernel, ceil_divide(width, most_threads), most_threads, 0, stream, total.as<float>(),
         partials, parts.parts, width);
}

}  // namespace annulus::cuda
