// Angles, and heads normalised and rotated. A head belongs to a group of neighbouring lanes, a power of two: with packs
// of 8 a warp works on four heads of 128 at once.
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cuda {
namespace {

__global__ void rotary_angles_kernel(float* cosine, float* sine, const int32_t* positions, int64_t rows, int64_t half,
                                     double theta) {
  const int64_t at = block_index() * block_threads() + thread_index();
  if (at >= rows * half) return;
  const int64_t row = at / half, i = at - row * half;
  const double frequency = pow(theta, -static_cast<double>(i) / static_cast<double>(half));
  const double angle = static_cast<double>(positions[row]) * frequency;
  cosine[at] = static_cast<float>(cos(angle));
  sine[at] = static_cast<float>(sin(angle));
}

// Places of a pair of packs, (x_i, x_{i+half}), and of its angles.
template <int N>
struct Pair {
  float a[N], b[N];

  template <class T>
  __device__ void load_from(const T* at, int64_t half) {
    load(a, at);
    load(b, at + half);
  }
  template <class T>
  __device__ void store_to(T* at, int64_t half) const {
    store(at, a);
    store(at + half, b);
  }
};

template <class T>
struct HeadForward {
  T* output;
  float* rstd;
  const T* input;
  const T* weight;
  const float* cosine;
  const float* sine;
  int64_t all_heads, heads, half;  // all_heads: of all rows
  int lanes;
  float eps;
};

template <class T, int N>
__device__ float head_rstd(const HeadForward<T>& args, int64_t head, int lane) {
  float squares = 0;
  for (int64_t i = lane * N; i < args.half && head < args.all_heads; i += args.lanes * N) {
    Pair<N> x;
    x.load_from(args.input + head * 2 * args.half + i, args.half);
#pragma unroll
    for (int j = 0; j < N; ++j) squares += x.a[j] * x.a[j] + x.b[j] * x.b[j];
  }
  const float sum = sum_over_lanes(squares, args.lanes);
  return 1.0F / sqrtf(sum / static_cast<float>(2 * args.half) + args.eps);
}

template <class T, int N>
__global__ void head_norm_rotary_forward_kernel(HeadForward<T> args) {
  const int lane = thread_index() % args.lanes;
  const int64_t head = (block_index() * block_threads() + thread_index()) / args.lanes;
  const float rstd = head_rstd<T, N>(args, head, lane);
  if (head >= args.all_heads) return;
  if (lane == 0) args.rstd[head] = rstd;
  const int64_t angles = head / args.heads * args.half;
  for (int64_t i = lane * N; i < args.half; i += args.lanes * N) {
    Pair<N> x, w;
    x.load_from(args.input + head * 2 * args.half + i, args.half);
    w.load_from(args.weight + i, args.half);
    float c[N], s[N];
    load(c, args.cosine + angles + i);
    load(s, args.sine + angles + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float a = x.a[j] * rstd * w.a[j], b = x.b[j] * rstd * w.b[j];
      x.a[j] = a * c[j] - b * s[j];
      x.b[j] = b * c[j] + a * s[j];
    }
    x.store_to(args.output + head * 2 * args.half + i, args.half);
  }
}

template <class T>
struct HeadBackward {
  T* input_gradient;
  double* partials;  // (blocks, head_dim)
  const float* output_gradient;
  const T* input;
  const float* rstd;
  const T* weight;
  const float* cosine;
  const float* sine;
  int64_t all_heads, heads, half, part;  // part: heads of a block
  int lanes;
};

// The gradient of the normalised head: the output's, rotated back.
template <int N, class T>
__device__ Pair<N> rotated_back(const HeadBackward<T>& args, int64_t head, int64_t i) {
  Pair<N> dy;
  dy.load_from(args.output_gradient + head * 2 * args.half + i, args.half);
  float c[N], s[N];
  load(c, args.cosine + head / args.heads * args.half + i);
  load(s, args.sine + head / args.heads * args.half + i);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float a = dy.a[j] * c[j] + dy.b[j] * s[j], b = dy.b[j] * c[j] - dy.a[j] * s[j];
    dy.a[j] = a;
    dy.b[j] = b;
  }
  return dy;
}

// Every lane of the warp comes here, `here` says whether its group has a head.
template <int N, class T>
__device__ void differentiate_head(const HeadBackward<T>& args, int64_t head, bool here, int lane,
                                   const SharedArray<float>& recent) {
  const float rstd = here ? args.rstd[head] : 0.0F;
  float dot = 0;
  for (int64_t i = lane * N; i < args.half && here; i += args.lanes * N) {
    const Pair<N> dy = rotated_back<N>(args, head, i);
    Pair<N> x, w;
    x.load_from(args.input + head * 2 * args.half + i, args.half);
    w.load_from(args.weight + i, args.half);
#pragma unroll
    for (int j = 0; j < N; ++j) dot += dy.a[j] * w.a[j] * (x.a[j] * rstd) + dy.b[j] * w.b[j] * (x.b[j] * rstd);
  }
  const float mean = sum_over_lanes(dot, args.lanes) / static_cast<float>(2 * args.half);
  for (int64_t i = lane * N; i < args.half && here; i += args.lanes * N) {
    const int at = static_cast<int>(i), half = static_cast<int>(args.half);
    const Pair<N> dy = rotated_back<N>(args, head, i);
    Pair<N> x, w, dw;
    x.load_from(args.input + head * 2 * args.half + i, args.half);
    w.load_from(args.weight + i, args.half);
    load(dw.a, recent.address(at));
    load(dw.b, recent.address(at + half));
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float a = x.a[j] * rstd, b = x.b[j] * rstd;
      dw.a[j] += dy.a[j] * a;
      dw.b[j] += dy.b[j] * b;
      x.a[j] = rstd * (dy.a[j] * w.a[j] - a * mean);
      x.b[j] = rstd * (dy.b[j] * w.b[j] - b * mean);
    }
    store(recent.address(at), dw.a);
    store(recent.address(at + half), dw.b);
    x.store_to(args.input_gradient + head * 2 * args.half + i, args.half);
  }
}

// recent: (groups, head_dim), a row for each group of lanes. Every group adds up to 32 heads before the block adds up
// the groups.
template <class T, int N>
__global__ void head_norm_rotary_backward_kernel(HeadBackward<T> args) {
  const int lane = thread_index() % args.lanes, group = thread_index() / args.lanes;
  const int groups = block_threads() / args.lanes, width = static_cast<int>(2 * args.half);
  const SharedArray<float> recent = shared_array<float>(0, groups * width);
  double* const partial = args.partials + block_index() * width;
  const int64_t begin = block_index() * args.part;
  const int64_t end = begin + args.part < args.all_heads ? begin + args.part : args.all_heads;
  for (int64_t first = begin; first < end; first += groups * rows_in_float32) {
    for (int i = thread_index(); i < groups * width; i += block_threads()) recent[i] = 0;
    sync_threads();
    for (int turn = 0; turn < rows_in_float32; ++turn) {
      const int64_t head = first + turn * groups + group;
      differentiate_head<N>(args, head, head < end, lane, recent.part(group * width, width));
    }
    sync_threads();
    for (int column = thread_index(); column < width; column += block_threads()) {
      double sum = first == begin ? 0.0 : partial[column];
      for (int i = 0; i < groups; ++i) sum += static_cast<double>(recent[i * width + column]);
      partial[column] = sum;
    }
    sync_threads();
  }
}

}  // namespace

void CudaDevice::rotary_angles(View cosine, View sine, View positions, double theta, Stream stream) {
  require_rotary_angles(cosine, sine, positions);
  launch(rotary_angles_kernel, ceil_divide(cosine.elements(), most_threads), most_threads, 0, stream_of(stream),
         cosine.as<float>(), sine.as<float>(), positions.as<int32_t>(), cosine.rows(), cosine.row_elements(), theta);
}

void CudaDevice::head_norm_rotary_forward(const HeadNormRotaryForward& args, Stream stream) {
  require_shapes(args);
  const int64_t half = args.input.dim(2) / 2;
  with_float_type(args.input.dtype(), [&]<class T>() {
    with_pack<T>(
        half,
        [&]<int N>() {
          const HeadForward<T> kernel_args{.output = args.output.as<T>(),
                                           .rstd = args.rstd.as<float>(),
                                           .input = args.input.as<T>(),
                                           .weight = args.weight.as<T>(),
                                           .cosine = args.cosine.as<float>(),
                                           .sine = args.sine.as<float>(),
                                           .all_heads = args.rstd.elements(),
                                           .heads = args.input.dim(1),
                                           .half = half,
                                           .lanes = lanes_for(half / N),
                                           .eps = args.eps};
          const int64_t blocks = ceil_divide(kernel_args.all_heads * kernel_args.lanes, most_threads);
          launch(head_norm_rotary_forward_kernel<T, N>, blocks, most_threads, 0, stream_of(stream), kernel_args);
        },
        args.output, args.input, args.weight, args.cosine, args.sine);
  });
}

void CudaDevice::head_norm_rotary_backward(const HeadNormRotaryBackward& args, Stream stream) {
  require_shapes(args);
  const int64_t half = args.input.dim(2) / 2;
  const Parts parts = head_norm_parts(args.rstd.elements());
  const Allocation scratch(*memory_, partial_sums_bytes(parts, 2 * half), Purpose::workspace);
  auto* const partials = static_cast<double*>(scratch.data());
  with_float_type(args.input.dtype(), [&]<class T>() {
    with_pack<T>(
        half,
        [&]<int N>() {
          const HeadBackward<T> kernel_args{.input_gradient = args.input_gradient.as<T>(),
                                            .partials = partials,
                                            .output_gradient = args.output_gradient.as<float>(),
                                            .input = args.input.as<T>(),
                                            .rstd = args.rstd.as<float>(),
                                            .weight = args.weight.as<T>(),
                                            .cosine = args.cosine.as<float>(),
                                            .sine = args.sine.as<float>(),
                                            .all_heads = args.rstd.elements(),
                                            .heads = args.input.dim(1),
                                            .half = half,
                                            .part = parts.size,
                                            .lanes = lanes_for(half / N)};
          const int64_t shared_bytes =
              most_threads / kernel_args.lanes * 2 * half * static_cast<int64_t>(sizeof(float));
          launch(head_norm_rotary_backward_kernel<T, N>, parts.parts, most_threads, shared_bytes,
                 workspace_stream(stream), kernel_args);
        },
        args.input_gradient, args.output_gradient, args.input, args.weight, args.cosine, args.sine);
  });
  add_partial_rows(args.weight_gradient, partials, parts, workspace_stream(stream));
}

}  // namespace annulus::cuda
