// Copying, adding and the gated activation.
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cuda {
namespace {

// A pack for each thread: destination = source, or += where `add`.
template <class D, class S, int N, bool add>
__global__ void combine_kernel(D* destination, const S* source, int64_t n) {
  const int64_t begin = (block_index() * block_threads() + thread_index()) * N;
  if (begin >= n) return;
  float values[N];
  load(values, source + begin);
  if constexpr (add) {
    float before[N];
    load(before, destination + begin);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] += before[i];
  }
  store(destination + begin, values);
}

template <bool add>
void combine(const View& destination, const View& source, cudaStream_t stream) {
  with_float_type(destination.dtype(), [&]<class D>() {
    with_float_type(source.dtype(), [&]<class S>() {
      using Narrowest = std::conditional_t<sizeof(D) < sizeof(S), D, S>;
      with_pack<Narrowest>(
          source.elements(),
          [&]<int N>() {
            const int64_t blocks = ceil_divide(source.elements() / N, most_threads);
            launch(combine_kernel<D, S, N, add>, blocks, most_threads, 0, stream, destination.as<D>(), source.as<S>(),
                   source.elements());
          },
          destination, source);
    });
  });
}

// Row `row` of gate_up is [gate | up]. A row has the same number of blocks, so that it is found by one division.
struct RowPlace {
  int64_t row, column;
};

template <int N>
__device__ RowPlace place(int64_t blocks_per_row) {
  const int64_t row = block_index() / blocks_per_row;
  return {row, ((block_index() - row * blocks_per_row) * block_threads() + thread_index()) * N};
}

template <class T, int N>
__global__ void swiglu_forward_kernel(T* output, const T* gate_up, int64_t width, int64_t blocks_per_row) {
  const RowPlace at = place<N>(blocks_per_row);
  if (at.column >= width) return;
  const T* const from = gate_up + at.row * 2 * width + at.column;
  float gate[N], up[N];
  load(gate, from);
  load(up, from + width);
#pragma unroll
  for (int i = 0; i < N; ++i) gate[i] = gate[i] / (1.0F + expf(-gate[i])) * up[i];
  store(output + at.row * width + at.column, gate);
}

// With s = 1/(1 + exp(−g)): d(g·s)/dg = s (1 + g (1 − s)). Each thread reads what it overwrites.
template <class T, int N>
__global__ void swiglu_backward_kernel(T* gate_up_gradient, const T* output_gradient, const T* gate_up, int64_t width,
                                       int64_t blocks_per_row) {
  const RowPlace at = place<N>(blocks_per_row);
  if (at.column >= width) return;
  const int64_t gate_at = at.row * 2 * width + at.column;
  float gate[N], up[N], above[N];
  load(gate, gate_up + gate_at);
  load(up, gate_up + gate_at + width);
  load(above, output_gradient + at.row * width + at.column);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float g = gate[i], sigmoid = 1.0F / (1.0F + expf(-g));
    gate[i] = above[i] * up[i] * sigmoid * (1.0F + g * (1.0F - sigmoid));
    up[i] = above[i] * g * sigmoid;
  }
  store(gate_up_gradient + gate_at, gate);
  store(gate_up_gradient + gate_at + width, up);
}

}  // namespace

void CudaDevice::copy(View destination, View source, Stream stream) {
  require_copy(destination, source);
  if (source.empty()) return;
  if (destination.dtype() == source.dtype()) {
    ANNULUS_CUDA_CHECK(cudaMemcpyAsync(destination.data(), source.data(), static_cast<size_t>(source.bytes()),
                                       cudaMemcpyDeviceToDevice, stream_of(stream)));
  } else {
    combine<false>(destination, source, stream_of(stream));
  }
}

void CudaDevice::accumulate(View destination, View source, Stream stream) {
  require_copy(destination, source);
  combine<true>(destination, source, stream_of(stream));
}

void CudaDevice::swiglu_forward(View output, View gate_up, Stream stream) {
  require_swiglu(output, gate_up);
  const int64_t width = output.row_elements();
  with_float_type(output.dtype(), [&]<class T>() {
    with_pack<T>(
        width,
        [&]<int N>() {
          const int64_t blocks_per_row = ceil_divide(width / N, most_threads);
          launch(swiglu_forward_kernel<T, N>, output.rows() * blocks_per_row, most_threads, 0, stream_of(stream),
                 output.as<T>(), gate_up.as<T>(), width, blocks_per_row);
        },
        output, gate_up);
  });
}

void CudaDevice::swiglu_backward(View gate_up_gradient, View output_gradient, View gate_up, Stream stream) {
  require_swiglu(output_gradient, gate_up);
  require_copy(gate_up_gradient, gate_up);
  const int64_t width = output_gradient.row_elements();
  with_float_type(gate_up.dtype(), [&]<class T>() {
    with_pack<T>(
        width,
        [&]<int N>() {
          const int64_t blocks_per_row = ceil_divide(width / N, most_threads);
          launch(swiglu_backward_kernel<T, N>, gate_up.rows() * blocks_per_row, most_threads, 0, stream_of(stream),
                 gate_up_gradient.as<T>(), output_gradient.as<T>(), gate_up.as<T>(), width, blocks_per_row);
        },
        gate_up_gradient, output_gradient, gate_up);
  });
}

}  // namespace annulus::cuda
