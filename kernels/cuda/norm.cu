// Root mean square norms of rows: a block for each row, or for a part of the rows where the weight's gradient is
// summed.
#include <algorithm>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cuda {
namespace {

// Whole warps, as many as find work in a row.
int threads_for(int64_t packs) {
  return narrow<int>(std::clamp<int64_t>(round_up(packs, warp_size), 32, most_threads));
}

template <class T, int N>
__global__ void rms_norm_forward_kernel(T* output, float* rstd, const T* input, const T* weight, int64_t width,
                                        float eps) {
  const SharedArray<double> scratch = shared_array<double>(0, most_warps);
  const T* const from = input + block_index() * width;
  float squares = 0;
  for (int64_t i = thread_index() * N; i < width; i += block_threads() * N) {
    float x[N];
    load(x, from + i);
#pragma unroll
    for (int j = 0; j < N; ++j) squares += x[j] * x[j];
  }
  const double sum = sum_over_block(static_cast<double>(squares), scratch);
  const float inverse = 1.0F / sqrtf(static_cast<float>(sum / static_cast<double>(width)) + eps);
  if (thread_index() == 0) rstd[block_index()] = inverse;
  for (int64_t i = thread_index() * N; i < width; i += block_threads() * N) {
    float x[N], w[N];
    load(x, from + i);
    load(w, weight + i);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = x[j] * inverse * w[j];
    store(output + block_index() * width + i, x);
  }
}

template <class T, class G>
struct NormBackward {
  T* input_gradient;
  double* partials;  // (blocks, width)
  const G* output_gradient;
  const T* input;
  const float* rstd;
  const T* weight;
  int64_t rows, width, part;  // rows of a block
};

// The dot product of a row's gradient with what it was normalised to, divided by the width.
template <int N, class T, class G>
__device__ float mean_along(const NormBackward<T, G>& args, int64_t row, const SharedArray<double>& scratch) {
  float dot = 0;
  for (int64_t i = thread_index() * N; i < args.width; i += block_threads() * N) {
    float dy[N], x[N], w[N];
    load(dy, args.output_gradient + row * args.width + i);
    load(x, args.input + row * args.width + i);
    load(w, args.weight + i);
#pragma unroll
    for (int j = 0; j < N; ++j) dot += dy[j] * w[j] * (x[j] * args.rstd[row]);
  }
  return static_cast<float>(sum_over_block(static_cast<double>(dot), scratch) / static_cast<double>(args.width));
}

// A thread owns columns: it alone adds to its places in `recent` and in the block's row of partials.
template <int N, class T, class G>
__device__ void differentiate_row(const NormBackward<T, G>& args, int64_t row, float mean,
                                  const SharedArray<float>& recent) {
  const float rstd = args.rstd[row];
  for (int64_t i = thread_index() * N; i < args.width; i += block_threads() * N) {
    float dy[N], x[N], w[N], dx[N], dw[N];
    load(dy, args.output_gradient + row * args.width + i);
    load(x, args.input + row * args.width + i);
    load(w, args.weight + i);
    load(dx, args.input_gradient + row * args.width + i);
    load(dw, recent.address(static_cast<int>(i)));
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float normalised = x[j] * rstd;
      dw[j] += dy[j] * normalised;
      dx[j] += rstd * (dy[j] * w[j] - normalised * mean);
    }
    store(args.input_gradient + row * args.width + i, dx);
    store(recent.address(static_cast<int>(i)), dw);
  }
}

template <class T, class G, int N>
__global__ void rms_norm_backward_kernel(NormBackward<T, G> args) {
  // A row's sum may still be read while the next row's is written: they take turns.
  const SharedArray<double> scratch = shared_array<double>(0, 2 * most_warps);
  const SharedArray<float> recent = shared_array<float>(2 * most_warps * sizeof(double), static_cast<int>(args.width));
  double* const partial = args.partials + block_index() * args.width;
  const int64_t begin = block_index() * args.part;
  const int64_t end = begin + args.part < args.rows ? begin + args.part : args.rows;
  for (int64_t first = begin; first < end; first += rows_in_float32) {
    const int64_t last = first + rows_in_float32 < end ? first + rows_in_float32 : end;
    for (int64_t i = thread_index() * N; i < args.width; i += block_threads() * N) {
      const float zeros[N] = {};
      store(recent.address(static_cast<int>(i)), zeros);
    }
    for (int64_t row = first; row < last; ++row) {
      const float mean = mean_along<N>(args, row, scratch.part(static_cast<int>(row % 2) * most_warps, most_warps));
      differentiate_row<N>(args, row, mean, recent);
    }
    for (int64_t i = thread_index() * N; i < args.width; i += block_threads() * N) {
      float addend[N];
      double sum[N] = {};
      load(addend, recent.address(static_cast<int>(i)));
      if (first > begin) load(sum, partial + i);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += static_cast<double>(addend[j]);
      store(partial + i, sum);
    }
  }
}

template <class T, class G>
void queue_backward(const RmsNormBackward& args, const Parts& parts, double* partials, cudaStream_t stream) {
  const int64_t width = args.weight.elements();
  const NormBackward<T, G> kernel_args{.input_gradient = args.input_gradient.as<T>(),
                                       .partials = partials,
                                       .output_gradient = args.output_gradient.as<G>(),
                                       .input = args.input.as<T>(),
                                       .rstd = args.rstd.as<float>(),
                                       .weight = args.weight.as<T>(),
                                       .rows = args.input.rows(),
                                       .width = width,
                                       .part = parts.size};
  const int64_t shared_bytes =
      2 * most_warps * static_cast<int64_t>(sizeof(double)) + width * static_cast<int64_t>(sizeof(float));
  with_pack<T>(
      width,
      [&]<int N>() {
        launch(rms_norm_backward_kernel<T, G, N>, parts.parts, threads_for(width / N), shared_bytes, stream,
               kernel_args);
      },
      args.input_gradient, args.output_gradient, args.input, args.weight);
}

}  // namespace

void CudaDevice::rms_norm_forward(const RmsNormForward& args, Stream stream) {
  require_shapes(args);
  const int64_t width = args.weight.elements();
  with_float_type(args.input.dtype(), [&]<class T>() {
    with_pack<T>(
        width,
        [&]<int N>() {
          launch(rms_norm_forward_kernel<T, N>, args.input.rows(), threads_for(width / N),
                 most_warps * static_cast<int64_t>(sizeof(double)), stream_of(stream), args.output.as<T>(),
                 args.rstd.as<float>(), args.input.as<T>(), args.weight.as<T>(), width, args.eps);
        },
        args.output, args.input, args.weight);
  });
}

void CudaDevice::rms_norm_backward(const RmsNormBackward& args, Stream stream) {
  require_shapes(args);
  const Parts parts = norm_parts(args.input.rows());
  const Allocation scratch(*memory_, partial_sums_bytes(parts, args.weight.elements()), Purpose::workspace);
  auto* const partials = static_cast<double*>(scratch.data());
  with_float_type(args.input.dtype(), [&]<class T>() {
    if (args.output_gradient.dtype() == DType::float32) {
      queue_backward<T, float>(args, parts, partials, workspace_stream(stream));
    } else {
      queue_backward<T, T>(args, parts, partials, workspace_stream(stream));
    }
  });
  add_partial_rows(args.weight_gradient, partials, parts, workspace_stream(stream));
}

}  // namespace annulus::cuda
