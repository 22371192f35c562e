#include "kernels/cpu/vector.h"

#include "kernels/cpu/exp.h"

namespace annulus::cpu {
namespace {

float load(float value) {
  return value;
}
float load(bfloat16 value) {
  return widen(value);
}
void store(float* place, float value) {
  *place = value;
}
void store(bfloat16* place, float value) {
  *place = round_to_bfloat16(value);
}

template <class D, class S>
void add(D* destination, const S* source, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(destination + i, load(destination[i]) + load(source[i]));
}

void round(bfloat16* destination, const float* source, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = round_to_bfloat16(source[i]);
}

void widen(float* destination, const bfloat16* source, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] = load(source[i]);
}

void add_to_float64(double* destination, const float* source, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) destination[i] += static_cast<double>(source[i]);
}

template <class S>
double sum(const S* source, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(source[i]);
  return total;
}

template <class S>
double sum_of_squares(const S* source, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<double>(source[i]);
    total += x * x;
  }
  return total;
}

// Σ term(i), in float32 within blocks and in float64 over them, so that the error does not grow with n.
template <class Term>
double blocked_sum(int64_t n, Term term) {
  constexpr int64_t block = 256;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = begin + block < n ? begin + block : n;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = begin; i < end; ++i) part += term(i);
    total += static_cast<double>(part);
  }
  return total;
}

template <class T>
float inverse_rms(const T* input, int64_t n, float eps) {
  const double squares = blocked_sum(n, [=](int64_t i) { return load(input[i]) * load(input[i]); });
  return 1.0F / __builtin_sqrtf(static_cast<float>(squares / static_cast<double>(n)) + eps);
}

template <class T>
float rms_norm(T* output, const T* input, const T* weight, int64_t n, float eps) {
  const float rstd = inverse_rms(input, n, eps);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(output + i, load(input[i]) * rstd * load(weight[i]));
  return rstd;
}

// With g = dy·w and x̂ = x·rstd: dx = rstd (g − x̂ mean(g·x̂)), dw = dy·x̂.
template <class T, class G>
void rms_norm_backward(T* input_gradient, float* weight_gradient, const G* output_gradient, const T* input,
                       const T* weight, float rstd, int64_t n) {
  const double dot =
      blocked_sum(n, [=](int64_t i) { return load(output_gradient[i]) * load(weight[i]) * (load(input[i]) * rstd); });
  const auto mean = static_cast<float>(dot / static_cast<double>(n));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float dy = load(output_gradient[i]);
    const float normalised = load(input[i]) * rstd;
    weight_gradient[i] += dy * normalised;
    store(input_gradient + i, load(input_gradient[i]) + rstd * (dy * load(weight[i]) - normalised * mean));
  }
}

template <class T>
float head_norm_rotary(T* output, const T* input, const T* weight, const float* cosine, const float* sine, int64_t n,
                       float eps) {
  const float rstd = inverse_rms(input, n, eps);
  const int64_t half = n / 2;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = load(input[i]) * rstd * load(weight[i]);
    const float b = load(input[i + half]) * rstd * load(weight[i + half]);
    store(output + i, a * cosine[i] - b * sine[i]);
    store(output + i + half, b * cosine[i] + a * sine[i]);
  }
  return rstd;
}

// Rotated back, the gradient is that of the normalised head; then as rms_norm_backward.
template <class T>
void head_norm_rotary_backward(T* input_gradient, float* weight_gradient, const float* output_gradient, const T* input,
                               const T* weight, const float* cosine, const float* sine, float rstd, int64_t n) {
  const int64_t half = n / 2;
  const double dot = blocked_sum(half, [=](int64_t i) {
    const float da = output_gradient[i] * cosine[i] + output_gradient[i + half] * sine[i];
    const float db = output_gradient[i + half] * cosine[i] - output_gradient[i] * sine[i];
    return da * load(weight[i]) * (load(input[i]) * rstd) +
           db * load(weight[i + half]) * (load(input[i + half]) * rstd);
  });
  const auto mean = static_cast<float>(dot / static_cast<double>(n));
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float da = output_gradient[i] * cosine[i] + output_gradient[i + half] * sine[i];
    const float db = output_gradient[i + half] * cosine[i] - output_gradient[i] * sine[i];
    const float a = load(input[i]) * rstd;
    const float b = load(input[i + half]) * rstd;
    weight_gradient[i] += da * a;
    weight_gradient[i + half] += db * b;
    store(input_gradient + i, rstd * (da * load(weight[i]) - a * mean));
    store(input_gradient + i + half, rstd * (db * load(weight[i + half]) - b * mean));
  }
}

template <class T>
void swiglu(T* output, const T* gate, const T* up, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = load(gate[i]);
    store(output + i, g / (1.0F + fast_exp(-g)) * load(up[i]));
  }
}

// With s = 1/(1 + exp(−g)): d(g·s)/dg = s (1 + g (1 − s)).
template <class T>
void swiglu_backward(T* gate_gradient, T* up_gradient, const T* output_gradient, const T* gate, const T* up,
                     int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float dy = load(output_gradient[i]);
    const float g = load(gate[i]);
    const float u = load(up[i]);
    const float sigmoid = 1.0F / (1.0F + fast_exp(-g));
    store(gate_gradient + i, dy * u * sigmoid * (1.0F + g * (1.0F - sigmoid)));
    store(up_gradient + i, dy * g * sigmoid);
  }
}

// Lanes by hand: compilers do not see through a maximum that passes over NaN.
template <class T>
float maximum(const T* input, int64_t n) {
  constexpr int64_t lanes = 32;
  float most[lanes];
  for (float& lane : most) lane = -__builtin_inff();
  const int64_t whole = n - n % lanes;
  for (int64_t i = 0; i < whole; i += lanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < lanes; ++lane) {
      most[lane] = load(input[i + lane]) > most[lane] ? load(input[i + lane]) : most[lane];
    }
  }
  for (int64_t i = whole; i < n; ++i) most[0] = load(input[i]) > most[0] ? load(input[i]) : most[0];
  for (const float lane : most) most[0] = lane > most[0] ? lane : most[0];
  return most[0];
}

template <class T>
double sum_exp(const T* input, float shift, int64_t n) {
  return blocked_sum(n, [=](int64_t i) { return fast_exp(load(input[i]) - shift); });
}

template <class T>
void scaled_exp(T* data, float shift, float factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(data + i, factor * fast_exp(load(data[i]) - shift));
}

// The decay joins the step in one subtraction: 1 − lr·wd rounded to float32 would be wrong by percents of lr·wd.
template <class T>
void adamw(float* master, float* moment1, float* moment2, const float* gradient, T* weight, const AdamWFactors& factors,
           int64_t n) {
  const AdamWFactors f = factors;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * f.gradient_scale;
    const float m = f.beta1 * moment1[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * moment2[i] + f.one_minus_beta2 * (g * g);
    const float step = f.step_size * m / (__builtin_sqrtf(v) * f.inverse_correction2 + f.eps);
    const float p = master[i] - (f.decay * master[i] + step);
    moment1[i] = m;
    moment2[i] = v;
    master[i] = p;
    store(weight + i, p);
  }
}

template <class T>
constexpr TypedMath<T> typed_math() {
  return {.add_float32 = add<T, float>,
          .add_bfloat16 = add<T, bfloat16>,
          .rms_norm = rms_norm<T>,
          .rms_norm_backward = rms_norm_backward<T, T>,
          .rms_norm_backward_float32 = rms_norm_backward<T, float>,
          .head_norm_rotary = head_norm_rotary<T>,
          .head_norm_rotary_backward = head_norm_rotary_backward<T>,
          .swiglu = swiglu<T>,
          .swiglu_backward = swiglu_backward<T>,
          .maximum = maximum<T>,
          .sum_exp = sum_exp<T>,
          .scaled_exp = scaled_exp<T>,
          .adamw = adamw<T>};
}

constexpr VectorMath table = {.float32 = typed_math<float>(),
                              .bfloat16_ = typed_math<bfloat16>(),
                              .round = round,
                              .widen = widen,
                              .add_to_float64 = add_to_float64,
                              .sum_float32 = sum<float>,
                              .sum_float64 = sum<double>,
                              .sum_of_squares_float32 = sum_of_squares<float>,
                              .sum_of_squares_float64 = sum_of_squares<double>};

}  // namespace

#define ANNULUS_JOIN_(a, b) a##b
#define ANNULUS_JOIN(a, b) ANNULUS_JOIN_(a, b)
extern const VectorMath ANNULUS_JOIN(vector_math_, ANNULUS_ISA);
const VectorMath ANNULUS_JOIN(vector_math_, ANNULUS_ISA) = table;

}  // namespace annulus::cpu
