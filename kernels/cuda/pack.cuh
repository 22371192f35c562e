// Rows of float32, bfloat16 or float64 read and written in packs of N elements: 16 bytes at once where their number and
// address allow, single elements elsewhere. Numbers are float32 (float64 for float64) between load and store.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/bfloat16.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/tensor.h"

namespace annulus::cuda {

// `bytes` bytes that one instruction moves, or two for 32.
template <int bytes>
struct alignas(bytes < 16 ? bytes : 16) Words {
  uint32_t word[bytes / 4];
};

// The same for float32 and float64.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Elements {
  T element[N];
};

template <int N>
__device__ inline void load(float (&to)[N], const bfloat16* from) {
  if constexpr (N == 1) {
    to[0] = __builtin_bit_cast(float, static_cast<uint32_t>(from->bits) << 16);
  } else {
    const auto words = *reinterpret_cast<const Words<2 * N>*>(from);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      to[2 * i] = __builtin_bit_cast(float, words.word[i] << 16);
      to[2 * i + 1] = __builtin_bit_cast(float, words.word[i] & 0xFFFF0000U);
    }
  }
}

// float to float and double to double
template <class T, int N>
__device__ inline void load(T (&to)[N], const T* from) {
  const auto elements = *reinterpret_cast<const Elements<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = elements.element[i];
}

template <int N>
__device__ inline void store(bfloat16* to, const float (&from)[N]) {
  if constexpr (N == 1) {
    to->bits = static_cast<uint16_t>(cvt_rn_bf16x2(0.0F, from[0]));
  } else {
    Words<2 * N> words;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) words.word[i] = cvt_rn_bf16x2(from[2 * i + 1], from[2 * i]);
    *reinterpret_cast<Words<2 * N>*>(to) = words;
  }
}

template <class T, int N>
__device__ inline void store(T* to, const T (&from)[N]) {
  Elements<T, N> elements;
#pragma unroll
  for (int i = 0; i < N; ++i) elements.element[i] = from[i];
  *reinterpret_cast<Elements<T, N>*>(to) = elements;
}

// Calls body.operator()<N>() with the widest N there is a 16-byte access for: `elements` is a multiple of it and each
// view begins at a multiple of 16 bytes; otherwise with 1. N is 16 bytes of the narrowest T.
template <class Narrowest, class Body, class... Views>
void with_pack(int64_t elements, const Body& body, const Views&... views) {
  constexpr int widest = 16 / static_cast<int>(sizeof(Narrowest));
  const bool aligned = ((reinterpret_cast<uintptr_t>(views.data()) % 16 == 0) && ...);
  if (elements % widest == 0 && aligned) {
    body.template operator()<widest>();
  } else {
    body.template operator()<1>();
  }
}

}  // namespace annulus::cuda
