// exp(x) for vectorised loops, and its core for vector types; always inlined, for the reason in kernels/bfloat16.h.
#pragma once

#include <cstdint>

namespace annulus::cpu {

// exp(x) = 2^n · mantissa, the integer n in the low bits of `shifted`, which is n + 1.5·2^23 as a float.
template <class Float>
struct ExpParts {
  Float mantissa, shifted;
};

// For |x| ≤ 104, relative error below 2e-7; Float is float or a vector of them. With n = round(x / ln 2) and
// r = x − n ln 2 the mantissa is exp(r); ln 2 in two parts and the polynomial are those of Cephes' expf (Moshier).
template <class Float>
[[gnu::always_inline]] inline ExpParts<Float> exp_parts(Float x) {
  constexpr float shift = 12582912.0F;  // 1.5·2^23: adding it leaves round(x / ln 2) in the low bits
  const Float shifted = x * 1.44269504088896341F + shift;
  const Float n = shifted - shift;
  const Float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  Float p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  return {p * (r * r) + r + 1.0F, shifted};
}

// exp(−inf) = 0, exp(inf) = inf, a NaN stays one, small results are subnormal, exp(0) = 1.
[[gnu::always_inline]] inline float fast_exp(float x) {
  constexpr float lowest = -104.0F;  // exp of it rounds to 0
  constexpr float highest = 89.0F;   // exp of it overflows
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  const ExpParts<float> parts = exp_parts(x);
  // 2^n in two factors, since n reaches from −150 to 128.
  const auto exponent = static_cast<int32_t>(__builtin_bit_cast(uint32_t, parts.shifted) - 0x4B400000U);
  const int32_t half = exponent >> 1;
  const auto power = [](int32_t e) __attribute__((always_inline)) {
    return __builtin_bit_cast(float, (static_cast<uint32_t>(e) + 127U) << 23);
  };
  return parts.mantissa * power(half) *
         power(static_cast<int32_t>(static_cast<uint32_t>(exponent) - static_cast<uint32_t>(half)));
}

}  // namespace annulus::cpu
