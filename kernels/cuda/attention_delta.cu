// δ = Σ output · output_gradient over each head: a group of lanes for each.
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cuda {
namespace {

template <class T, int N>
__global__ void attention_delta_kernel(float* delta, const T* output, const T* output_gradient, int64_t heads,
                                       int64_t head_dim, int lanes) {
  const int64_t head = (block_index() * block_threads() + thread_index()) / lanes;  // of all rows
  const int lane = thread_index() % lanes;
  float dot = 0;
  for (int64_t i = lane * N; i < head_dim && head < heads; i += lanes * N) {
    float a[N], b[N];
    load(a, output + head * head_dim + i);
    load(b, output_gradient + head * head_dim + i);
#pragma unroll
    for (int j = 0; j < N; ++j) dot += a[j] * b[j];
  }
  dot = sum_over_lanes(dot, lanes);
  if (lane == 0 && head < heads) delta[head] = dot;
}

}  // namespace

void CudaDevice::attention_delta(View delta, View output, View output_gradient, Stream stream) {
  require_copy(output_gradient, output);
  const int64_t head_dim = output.dim(2), heads = delta.elements();
  with_float_type(output.dtype(), [&]<class T>() {
    with_pack<T>(
        head_dim,
        [&]<int N>() {
          const int lanes = lanes_for(head_dim / N);
          launch(attention_delta_kernel<T, N>, ceil_divide(heads * lanes, most_threads), most_threads, 0,
                 stream_of(stream), delta.as<float>(), output.as<T>(), output_gradient.as<T>(), heads, head_dim, lanes);
        },
        output, output_gradient);
  });
}

}  // namespace annulus::cuda
