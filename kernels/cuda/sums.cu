// Sums over whole arrays, in float64 and in an order that follows from their length alone.
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/shapes.h"

namespace annulus::cuda {
namespace {

constexpr int64_t scratch_bytes = most_warps * sizeof(double);

// partials[block] = the sum of elements [block·part, (block + 1)·part).
template <class S, int N, bool square>
__global__ void partial_sum_kernel(double* partials, const S* source, int64_t n, int64_t part) {
  const SharedArray<double> scratch = shared_array<double>(0, most_warps);
  const int64_t begin = block_index() * part;
  const int64_t end = begin + part < n ? begin + part : n;
  double sum = 0;
  for (int64_t i = begin + thread_index() * N; i < end; i += block_threads() * N) {
    S values[N];
    load(values, source + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const auto value = static_cast<double>(values[j]);
      sum += square ? value * value : value;
    }
  }
  sum = sum_over_block(sum, scratch);
  if (thread_index() == 0) partials[block_index()] = sum;
}

// One block: destination += the sum of the partials.
__global__ void add_partials_kernel(double* destination, const double* partials, int64_t count) {
  const SharedArray<double> scratch = shared_array<double>(0, most_warps);
  double sum = 0;
  for (int64_t i = thread_index(); i < count; i += block_threads()) sum += partials[i];
  sum = sum_over_block(sum, scratch);
  if (thread_index() == 0) *destination += sum;
}

__global__ void sum_rows_kernel(double* destination, const double* source, int64_t rows, int64_t width) {
  const int64_t column = block_index() * block_threads() + thread_index();
  if (column >= width) return;
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += source[row * width + column];
  destination[column] = sum;
}

template <class S, bool square>
void queue_sum(const View& destination, const View& source, const Parts& parts, double* partials, cudaStream_t stream) {
  with_pack<S>(
      source.elements(),
      [&]<int N>() {
        launch(partial_sum_kernel<S, N, square>, parts.parts, most_threads, scratch_bytes, stream, partials,
               source.as<S>(), source.elements(), parts.size);
      },
      source);
  launch(add_partials_kernel, 1, most_threads, scratch_bytes, stream, destination.as<double>(), partials, parts.parts);
}

}  // namespace

template <bool square>
void CudaDevice::add_sum(const View& destination, const View& source, cudaStream_t stream) {
  const Parts parts = sum_parts(source.elements());
  const Allocation partials(*memory_, partial_sums_bytes(parts, 1), Purpose::workspace);
  auto* const sums = static_cast<double*>(partials.data());
  if (source.dtype() == DType::float64) {
    queue_sum<double, square>(destination, source, parts, sums, stream);
  } else {
    queue_sum<float, square>(destination, source, parts, sums, stream);
  }
}

void CudaDevice::sum(View destination, View source, Stream stream) {
  add_sum<false>(destination, source, workspace_stream(stream));
}

void CudaDevice::sum_of_squares(View destination, View source, Stream stream) {
  add_sum<true>(destination, source, workspace_stream(stream));
}

void CudaDevice::sum_rows(View destination, View source, Stream stream) {
  require_sum_rows(destination, source);
  const int64_t width = destination.elements();
  launch(sum_rows_kernel, ceil_divide(width, most_threads), most_threads, 0, stream_of(stream),
         destination.as<double>(), source.as<double>(), source.rows(), width);
}

}  // namespace annulus::cuda
