// Looking up rows of a table, and adding their gradients to it.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cuda {
namespace {

// A block for each row of the output. A token outside the vocabulary gives NaN.
template <class T, int N>
__global__ void embedding_forward_kernel(T* output, const T* table, const int32_t* tokens, int64_t vocabulary,
                                         int64_t width) {
  const int64_t token = tokens[block_index()];
  const bool known = token >= 0 && token < vocabulary;
  for (int64_t i = thread_index() * N; i < width; i += block_threads() * N) {
    float values[N];
    for (int j = 0; j < N; ++j) values[j] = NAN;
    if (known) load(values, table + token * width + i);
    store(output + block_index() * width + i, values);
  }
}

constexpr int64_t owners = 1024;  // blocks that share out the rows of the table

// Each block owns the rows token % owners == block of the table and passes over all tokens, so that every element is
// added up by one thread, in the order of the rows, whatever the tokens are. A token outside the vocabulary was NaN in
// forward.
template <class T, int N>
__global__ void embedding_backward_kernel(float* table_gradient, const T* output_gradient, const int32_t* tokens,
                                          int64_t rows, int64_t vocabulary, int64_t width) {
  const SharedArray<int32_t> batch = shared_array<int32_t>(0, block_threads());
  for (int64_t first = 0; first < rows; first += block_threads()) {
    const int64_t mine = first + thread_index();
    sync_threads();
    batch[thread_index()] = mine < rows ? tokens[mine] : -1;
    sync_threads();
    for (int i = 0; i < block_threads(); ++i) {
      const int64_t token = batch[i];
      if (token < 0 || token >= vocabulary || token % owners != block_index()) continue;
      for (int64_t column = thread_index() * N; column < width; column += block_threads() * N) {
        float sum[N], addend[N];
        load(sum, table_gradient + token * width + column);
        load(addend, output_gradient + (first + i) * width + column);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += addend[j];
        store(table_gradient + token * width + column, sum);
      }
    }
  }
}

}  // namespace

void CudaDevice::embedding_forward(View output, View table, View tokens, Stream stream) {
  require_embedding_forward(output, table, tokens);
  const int64_t width = output.row_elements();
  with_float_type(output.dtype(), [&]<class T>() {
    with_pack<T>(
        width,
        [&]<int N>() {
          launch(embedding_forward_kernel<T, N>, output.rows(), most_threads, 0, stream_of(stream), output.as<T>(),
                 table.as<T>(), tokens.as<int32_t>(), table.rows(), width);
        },
        output, table);
  });
}

void CudaDevice::embedding_backward(View table_gradient, View output_gradient, View tokens, Stream stream) {
  require_embedding_backward(table_gradient, output_gradient, tokens);
  const int64_t width = table_gradient.row_elements();
  const int64_t blocks = std::min(owners, table_gradient.rows());
  with_float_type(output_gradient.dtype(), [&]<class T>() {
    with_pack<T>(
        width,
        [&]<int N>() {
          launch(embedding_backward_kernel<T, N>, blocks, most_threads, most_threads * sizeof(int32_t),
                 stream_of(stream), table_gradient.as<float>(), output_gradient.as<T>(), tokens.as<int32_t>(),
                 output_gradient.rows(), table_gradient.rows(), width);
        },
        table_gradient, output_gradient);
  });
}

}  // namespace annulus::cuda
