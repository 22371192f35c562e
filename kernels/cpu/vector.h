// The inner loops of the CPU device on raw pointers. vector.cpp is compiled once for each instruction set into a table
// of function pointers; the device asks the CPU once, when it starts, which to use. Nothing here may come from a header
// with inline functions (see kernels/bfloat16.h), so vector.cpp includes no standard library templates.
//
// n is the number of elements; T is float or bfloat16; sums run in float32 unless a comment says otherwise. Pointers
// may be equal where a comment says so and do not overlap otherwise.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/cpu/isa.h"

namespace annulus::cpu {

// AdamW of one step with everything that is the same for all elements, bias corrections included.
struct AdamWFactors {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size;            // learning_rate / (1 − beta1^step)
  float inverse_correction2;  // 1 / sqrt(1 − beta2^step)
  float eps;
  float decay;  // learning_rate · weight_decay
};

template <class T>
struct TypedMath {
  void (*add_float32)(T* destination, const float* source, int64_t n);
  void (*add_bfloat16)(T* destination, const bfloat16* source, int64_t n);

  // One row of RmsNorm; returns 1/rms.
  float (*rms_norm)(T* output, const T* input, const T* weight, int64_t n, float eps);
  // Both add to both gradients.
  void (*rms_norm_backward)(T* input_gradient, float* weight_gradient, const T* output_gradient, const T* input,
                            const T* weight, float rstd, int64_t n);
  void (*rms_norm_backward_float32)(T* input_gradient, float* weight_gradient, const float* output_gradient,
                                    const T* input, const T* weight, float rstd, int64_t n);

  // One head of HeadNormRotary, n = head_dim; returns 1/rms.
  float (*head_norm_rotary)(T* output, const T* input, const T* weight, const float* cosine, const float* sine,
                            int64_t n, float eps);
  // Writes the input's gradient and adds to the weight's.
  void (*head_norm_rotary_backward)(T* input_gradient, float* weight_gradient, const float* output_gradient,
                                    const T* input, const T* weight, const float* cosine, const float* sine, float rstd,
                                    int64_t n);

  void (*swiglu)(T* output, const T* gate, const T* up, int64_t n);
  // A gradient may be the very input it belongs to.
  void (*swiglu_backward)(T* gate_gradient, T* up_gradient, const T* output_gradient, const T* gate, const T* up,
                          int64_t n);

  float (*maximum)(const T* input, int64_t n);                        // of what is not NaN; −inf if nothing
  double (*sum_exp)(const T* input, float shift, int64_t n);          // Σ exp(x − shift)
  void (*scaled_exp)(T* data, float shift, float factor, int64_t n);  // x = factor · exp(x − shift)

  void (*adamw)(float* master, float* moment1, float* moment2, const float* gradient, T* weight /*may be master*/,
                const AdamWFactors& factors, int64_t n);
};

struct VectorMath {
  TypedMath<float> float32;
  TypedMath<bfloat16> bfloat16_;

  void (*round)(bfloat16* destination, const float* source, int64_t n);
  void (*widen)(float* destination, const bfloat16* source, int64_t n);
  void (*add_to_float64)(double* destination, const float* source, int64_t n);
  double (*sum_float32)(const float* source, int64_t n);  // these four in float64
  double (*sum_float64)(const double* source, int64_t n);
  double (*sum_of_squares_float32)(const float* source, int64_t n);
  double (*sum_of_squares_float64)(const double* source, int64_t n);

  template <class T>
  [[nodiscard]] const TypedMath<T>& of() const;
};

template <>
[[nodiscard]] inline const TypedMath<float>& VectorMath::of<float>() const {
  return float32;
}

template <>
[[nodiscard]] inline const TypedMath<bfloat16>& VectorMath::of<bfloat16>() const {
  return bfloat16_;
}

// The table of one instruction set. Calling into it needs a CPU that has it.
const VectorMath& vector_math(Isa isa);

}  // namespace annulus::cpu
