// The scale of a step's gradients and AdamW. Whether a step may change the weights is decided here, on the GPU: the
// host learns it afterwards.
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cuda {
namespace {

__global__ void gradient_scale_kernel(float* scale, double* norm, const double* sum_of_squares,
                                      const double* denominator, double max_norm) {
  const double divisor = *denominator;
  const double size = sqrt(*sum_of_squares) / divisor;
  *norm = size;
  const double clip = max_norm > 0 ? fmin(1.0, max_norm / (size + 1e-6)) : 1.0;
  const bool usable = isfinite(size) && divisor != 0;
  *scale = usable ? static_cast<float>(clip / divisor) : NAN;
}

// The factors of one step, the same for every element.
struct Factors {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size;            // learning_rate / (1 − beta1^step)
  float inverse_correction2;  // 1 / √(1 − beta2^step)
  float eps, decay;           // decay: learning_rate · weight_decay
};

Factors factors_of(const AdamW& args) {
  const auto step = static_cast<double>(args.step);
  return {.beta1 = static_cast<float>(args.beta1),
          .one_minus_beta1 = static_cast<float>(1 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .one_minus_beta2 = static_cast<float>(1 - args.beta2),
          .step_size = static_cast<float>(args.learning_rate / (1 - std::pow(args.beta1, step))),
          .inverse_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(args.beta2, step))),
          .eps = static_cast<float>(args.eps),
          .decay = static_cast<float>(args.learning_rate * args.weight_decay)};
}

// `weight` may be `master`: a thread has read all it needs before it writes.
template <class T, int N>
__global__ void adamw_kernel(float* master, float* moment1, float* moment2, const float* gradient, T* weight,
                             const float* scale, Factors f, int64_t n) {
  const int64_t at = (block_index() * block_threads() + thread_index()) * N;
  const float gradient_scale = *scale;
  if (at >= n || isnan(gradient_scale)) return;
  float p[N], m[N], v[N], g[N];
  load(p, master + at);
  load(m, moment1 + at);
  load(v, moment2 + at);
  load(g, gradient + at);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float scaled = g[i] * gradient_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * scaled;
    v[i] = f.beta2 * v[i] + f.one_minus_beta2 * (scaled * scaled);
    const float step = f.step_size * m[i] / (sqrtf(v[i]) * f.inverse_correction2 + f.eps);
    p[i] -= f.decay * p[i] + step;
  }
  store(moment1 + at, m);
  store(moment2 + at, v);
  store(master + at, p);
  store(weight + at, p);
}

}  // namespace

void CudaDevice::gradient_scale(const GradientScale& args, Stream stream) {
  launch(gradient_scale_kernel, 1, 1, 0, stream_of(stream), args.scale.as<float>(), args.norm.as<double>(),
         args.sum_of_squares.as<double>(), args.denominator.as<double>(), args.max_norm);
}

void CudaDevice::adamw(const AdamW& args, Stream stream) {
  require_shapes(args);
  const int64_t n = args.master.elements();
  with_float_type(args.weight.dtype(), [&]<class T>() {
    with_pack<T>(
        n,
        [&]<int N>() {
          launch(adamw_kernel<T, N>, ceil_divide(n / N, most_threads), most_threads, 0, stream_of(stream),
                 args.master.as<float>(), args.moment1.as<float>(), args.moment2.as<float>(), args.gradient.as<float>(),
                 args.weight.as<T>(), args.scale.as<float>(), factors_of(args), n);
        },
        args.master, args.moment1, args.moment2, args.gradient, args.weight);
  });
}

}  // namespace annulus::cuda
