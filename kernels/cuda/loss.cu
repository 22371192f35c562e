// Cross-entropy with its gradient in place of the logits: a block for each row, which is read twice and written once.
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cuda {
namespace {

// Σ exp(x − maximum) over the elements a thread has seen. The maximum passes over NaN, the sum does not.
struct RunningSum {
  float maximum = -INFINITY;
  double sum = 0;

  // To a maximum that is not smaller. Nothing was seen while the maximum is −∞.
  __device__ void rise_to(float higher) {
    if (higher == maximum) return;
    sum *= static_cast<double>(expf(maximum - higher));
    maximum = higher;
  }

  template <int N>
  __device__ void add(const float (&x)[N]) {
    float highest = maximum;
#pragma unroll
    for (int i = 0; i < N; ++i) highest = fmaxf(highest, x[i]);
    rise_to(highest);
    const float shift = maximum == -INFINITY ? 0.0F : maximum;  // −∞ − −∞ would be NaN
    float total = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) total += expf(x[i] - shift);
    sum += static_cast<double>(total);
  }
};

template <class T, int N>
__device__ void fill_zeros(T* row, int64_t width) {
  const float zeros[N] = {};
  for (int64_t i = thread_index() * N; i < width; i += block_threads() * N) store(row + i, zeros);
}

// logits become weight·exp(x − maximum)/sum.
template <class T, int N>
__device__ void write_probabilities(T* row, int64_t width, float maximum, float factor) {
  for (int64_t i = thread_index() * N; i < width; i += block_threads() * N) {
    float x[N];
    load(x, row + i);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = expf(x[j] - maximum) * factor;
    store(row + i, x);
  }
}

// The label's own element, weight (p − 1), is computed apart and rounded once: near p = 1 it is small beside p. A label
// outside the vocabulary gives NaN.
template <class T, int N>
__device__ void answer_row(T* row, float* loss, int64_t label, double weight, int64_t width) {
  const SharedArray<double> sums = shared_array<double>(0, most_warps);
  const SharedArray<float> maxima = shared_array<float>(most_warps * sizeof(double), most_warps);
  const bool known = label >= 0 && label < width;
  RunningSum running;
  for (int64_t i = thread_index() * N; i < width; i += block_threads() * N) {
    float x[N];
    load(x, row + i);
    running.add(x);
  }
  const float maximum = maximum_over_block(running.maximum, maxima);
  running.rise_to(maximum);
  const double sum = sum_over_block(running.sum, sums);
  float label_logit[1] = {NAN};
  if (known) load(label_logit, row + label);
  const double score = static_cast<double>(label_logit[0]) - static_cast<double>(maximum);
  sync_threads();  // the label's logit is read before it is overwritten
  write_probabilities<T, N>(row, width, maximum, static_cast<float>(known ? weight / sum : NAN));
  sync_threads();
  if (thread_index() > 0) return;
  *loss = static_cast<float>(weight * (log(sum) - score));
  const float gradient[1] = {static_cast<float>(weight * (exp(score) / sum - 1.0))};
  if (known) store(row + label, gradient);
}

template <class T, int N>
__global__ void cross_entropy_kernel(T* logits, float* losses, const int32_t* labels, const float* weights,
                                     int64_t width) {
  T* const row = logits + block_index() * width;
  float* const loss = losses + block_index();
  const int64_t label = labels[block_index()];
  const auto weight = static_cast<double>(weights[block_index()]);
  if (label == -1 || weight == 0) {  // whatever the logits are, NaN included
    fill_zeros<T, N>(row, width);
    if (thread_index() == 0) *loss = 0;
  } else {
    answer_row<T, N>(row, loss, label, weight, width);
  }
}

}  // namespace

void CudaDevice::cross_entropy(const CrossEntropy& args, Stream stream) {
  require_shapes(args);
  const int64_t width = args.logits.row_elements();
  constexpr int64_t shared_bytes = most_warps * static_cast<int64_t>(sizeof(double) + sizeof(float));
  with_float_type(args.logits.dtype(), [&]<class T>() {
    with_pack<T>(
        width,
        [&]<int N>() {
          launch(cross_entropy_kernel<T, N>, args.logits.rows(), most_threads, shared_bytes, stream_of(stream),
                 args.logits.as<T>(), args.losses.as<float>(), args.labels.as<int32_t>(), args.weights.as<float>(),
                 width);
        },
        args.logits);
  });
}

}  // namespace annulus::cuda
