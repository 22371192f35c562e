// No header of the standard library with templates is included here: a template compiled for AVX-512 could be the copy
// the linker keeps for everybody.
#include "kernels/cpu/attention_tile.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "kernels/cpu/exp.h"

namespace annulus::cpu::ANNULUS_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif

// Arithmetic, comparison and ?: on these are lane by lane.
using Floats [[gnu::vector_size(lanes * 4)]] = float;
using Ints [[gnu::vector_size(lanes * 4)]] = int32_t;
using Bits [[gnu::vector_size(lanes * 4)]] = uint32_t;
using Halves [[gnu::vector_size(lanes * 2)]] = uint16_t;

#if defined(__AVX512F__)
constexpr Ints iota = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif defined(__AVX2__)
constexpr Ints iota = {0, 1, 2, 3, 4, 5, 6, 7};
#else
constexpr Ints iota = {0, 1, 2, 3};
#endif

constexpr float infinity = __builtin_inff();

// Loads and stores go through memcpy: a row of scores holds bfloat16 after it held float32.
template <class Vector>
inline Vector load(const void* source) {
  Vector v;
  __builtin_memcpy(&v, source, sizeof(v));
  return v;
}

template <class Vector>
inline void store(void* destination, Vector v) {
  __builtin_memcpy(destination, &v, sizeof(v));
}

inline Floats broadcast(float x) {
  return x - Floats{};
}
inline Ints broadcast(int32_t x) {
  return x - Ints{};
}

inline Floats as_floats(Bits bits) {
  return load<Floats>(&bits);
}
inline Bits as_bits(Floats x) {
  return load<Bits>(&x);
}

// Lane by lane a > b ? a : b, which where one is NaN is b.
inline Floats larger(Floats a, Floats b) {
#ifdef __AVX512F__
  return _mm512_maskz_max_ps(0xFFFF, a, b);  // GCC 12 warns of _mm512_max_ps
#else
  return a > b ? a : b;
#endif
}

// Round to nearest even; a NaN stays one. The instruction makes zeros of subnormal numbers.
inline Halves to_bfloat16(Floats x) {
#ifdef __AVX512BF16__
  const auto halves = _mm512_cvtneps_pbh(x);
  return load<Halves>(&halves);
#else
  const Bits bits = as_bits(x);
  const Bits rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const Bits nan = Bits{} + 0x7FC0U;
  return __builtin_convertvector(x == x ? rounded : nan, Halves);
#endif
}

// exp(x) for x ≤ 88. NaN stays NaN, results below the smallest normal number are 0.
inline Floats exp(Floats x) {
  const Floats lowest = broadcast(-87.33654F);
  const ExpParts<Floats> parts = exp_parts(larger(lowest, x));
  const Floats power = as_floats((as_bits(parts.shifted) + 127U) << 23);
  return x < lowest ? Floats{} : parts.mantissa * power;
}

inline float exp(float x) {
  return exp(broadcast(x))[0];
}

// v with its lanes in the order of their indices with one bit inverted.
inline Floats swapped(Floats v, int bit) {
  return __builtin_shuffle(v, iota ^ bit);
}

inline float largest(Floats v) {
#pragma GCC unroll 4
  for (int bit = lanes / 2; bit > 0; bit /= 2) v = larger(v, swapped(v, bit));
  return v[0];
}

inline float sum(Floats v) {
#pragma GCC unroll 4
  for (int bit = lanes / 2; bit > 0; bit /= 2) v += swapped(v, bit);
  return v[0];
}

inline ColumnRanges within(const ColumnRanges& r, int64_t first, int64_t width) {
  const auto column = [&](int32_t c) {
    const int64_t shifted = c - first;
    return static_cast<int32_t>(shifted < 0 ? 0 : shifted > width ? width : shifted);
  };
  return {column(r.begin0), column(r.end0), column(r.begin1), column(r.end1)};
}

// The columns of a tile that one row sees, and the span of whole vectors that holds them.
struct Visible {
  template <class Tile>
  Visible(const Tile& tile, int64_t row)
      : Visible(within(tile.ranges[(tile.first_row + row) / tile.group], tile.first_column, tile.width)) {}

  explicit Visible(const ColumnRanges& r)
      : begin0(broadcast(r.begin0)), end0(broadcast(r.end0)), begin1(broadcast(r.begin1)), end1(broadcast(r.end1)) {
    const bool some0 = r.begin0 < r.end0, some1 = r.begin1 < r.end1;
    if (!some0 && !some1) return;
    begin = !some0 || (some1 && r.begin1 < r.begin0) ? r.begin1 : r.begin0;
    end = !some1 || (some0 && r.end0 > r.end1) ? r.end0 : r.end1;
    begin = begin / lanes * lanes;
    end = (end + lanes - 1) / lanes * lanes;
    whole_begin = ((some0 ? r.begin0 : r.begin1) + lanes - 1) / lanes * lanes;
    whole_end = (some0 ? r.end0 : r.end1) / lanes * lanes;
    if (whole_end < whole_begin) whole_begin = whole_end = begin;
  }

  Ints at(int32_t column) const {
    const Ints j = iota + column;
    return ((j >= begin0) & (j < end0)) | ((j >= begin1) & (j < end1));
  }

  Ints begin0, end0, begin1, end1;
  // Multiples of lanes. begin and end are equal where nothing is seen.
  int32_t begin = 0, end = 0;
  int32_t whole_begin = 0, whole_end = 0;  // within them, where every column is seen
};

struct Masked {
  static constexpr bool value = true;
};
struct Unmasked {
  static constexpr bool value = false;
};

// body(j, masked) for the vectors of a row from the left.
template <class Body>
[[gnu::always_inline]] inline void for_each_vector(const Visible& visible, const Body& body) {
  for (int32_t j = visible.begin; j < visible.whole_begin; j += lanes) body(j, Masked());
  for (int32_t j = visible.whole_begin; j < visible.whole_end; j += lanes) body(j, Unmasked());
  for (int32_t j = visible.whole_end; j < visible.end; j += lanes) body(j, Masked());
}

template <class Mask>
inline Floats select(Mask /*masked*/, const Visible& visible, int32_t column, Floats seen, Floats unseen) {
  if constexpr (Mask::value) return visible.at(column) ? seen : unseen;
  return seen;
}

// One row of float32, rewritten in place from the left as float32 or, packed, as bfloat16.
template <bool round>
inline void put(float* row, int32_t column, Floats x) {
  if constexpr (round) {
    store(reinterpret_cast<char*>(row) + column * 2, to_bfloat16(x));
  } else {
    store(row + column, x);
  }
}

template <bool round>
inline void put_zeros(float* row, int64_t begin, int64_t end) {
  for (int64_t column = begin; column < end; column += lanes) put<round>(row, static_cast<int32_t>(column), Floats{});
}

// Four maxima side by side, so that no comparison waits for the one before.
float row_maximum(const float* scores, const Visible& visible, float scale) {
  const Floats lowest = broadcast(-infinity);
  Floats maximum[4] = {lowest, lowest, lowest, lowest};
  const auto include = [&](int which, int32_t j, auto masked) {
    maximum[which] = larger(select(masked, visible, j, load<Floats>(scores + j) * scale, lowest), maximum[which]);
  };
  int32_t j = visible.begin;
  for (; j < visible.whole_begin; j += lanes) include(0, j, Masked());
  for (; j + 4 * lanes <= visible.whole_end; j += 4 * lanes) {
    for (int which = 0; which < 4; ++which) include(which, j + which * lanes, Unmasked());
  }
  for (; j < visible.end; j += lanes) include(0, j, Masked());
  return largest(larger(larger(maximum[0], maximum[1]), larger(maximum[2], maximum[3])));
}

// Writes the probabilities and returns their sum, taken before they are rounded.
template <bool round>
float row_probabilities(float* scores, const Visible& visible, float scale, float shift) {
  Floats total{};
  for_each_vector(visible, [&](int32_t j, auto masked) {
    const Floats p = select(masked, visible, j, exp(load<Floats>(scores + j) * scale - shift), Floats{});
    total += p;
    put<round>(scores, j, p);
  });
  return sum(total);
}

template <bool round>
void softmax_row(const SoftmaxTile& tile, int64_t row, const Visible& visible) {
  float* scores = tile.scores + row * tile.width;
  float* output = tile.output + row * tile.head_dim;
  const float old_max = tile.row_max[row];
  const float tile_max = row_maximum(scores, visible, tile.scale);
  const float new_max = tile_max > old_max ? tile_max : old_max;
  // −inf − −inf is avoided where every score so far is −inf; a NaN score still comes through as one.
  const float shift = new_max == -infinity ? 0.0F : new_max;
  put_zeros<round>(scores, 0, visible.begin);
  const float total = row_probabilities<round>(scores, visible, tile.scale, shift);
  put_zeros<round>(scores, visible.end, tile.width);
  if (new_max != old_max) {
    const float factor = exp(old_max - shift);
    tile.row_sum[row] *= factor;
    for (int64_t i = 0; i < tile.head_dim; ++i) output[i] *= factor;
  }
  tile.row_max[row] = new_max;
  tile.row_sum[row] += total;
}

template <bool round>
void softmax_tile(const SoftmaxTile& tile) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const Visible visible(tile, row);
    if (visible.begin == visible.end) {
      put_zeros<round>(tile.scores + row * tile.width, 0, tile.width);
    } else {
      softmax_row<round>(tile, row, visible);
    }
  }
}

// A row that sees nothing becomes zeros.
template <bool round>
void gradient_row(const GradientTile& tile, int64_t row) {
  const Visible visible(tile, row);
  float* scores = tile.scores + row * tile.width;
  float* gradients = tile.gradients + row * tile.width;
  const float log_sum = tile.log_sum[row], delta = tile.delta[row], scale = tile.scale;
  put_zeros<round>(scores, 0, visible.begin);
  put_zeros<round>(gradients, 0, visible.begin);
  for_each_vector(visible, [&](int32_t j, auto masked) {
    const Floats p = exp(load<Floats>(scores + j) * scale - log_sum);
    const Floats ds = p * (load<Floats>(gradients + j) - delta) * scale;
    put<round>(scores, j, select(masked, visible, j, p, Floats{}));
    put<round>(gradients, j, select(masked, visible, j, ds, Floats{}));
  });
  put_zeros<round>(scores, visible.end, tile.width);
  put_zeros<round>(gradients, visible.end, tile.width);
}

template <bool round>
void gradient_tile(const GradientTile& tile) {
  for (int64_t row = 0; row < tile.rows; ++row) gradient_row<round>(tile, row);
}

void softmax(const SoftmaxTile& tile) {
  tile.round ? softmax_tile<true>(tile) : softmax_tile<false>(tile);
}

void gradient(const GradientTile& tile) {
  tile.round ? gradient_tile<true>(tile) : gradient_tile<false>(tile);
}

inline float widened(float x) {
  return x;
}
inline float widened(annulus::bfloat16 x) {
  return widen(x);
}
inline void store_rounded(float* destination, float x) {
  *destination = x;
}
inline void store_rounded(annulus::bfloat16* destination, float x) {
  *destination = round_to_bfloat16(x);
}

template <class T>
void divide(T* out, const float* in, float divisor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store_rounded(out + i, in[i] / divisor);
}

template <class T>
float dot(const T* a, const T* b, int64_t n) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += widened(a[i]) * widened(b[i]);
  return total;
}

}  // namespace

extern const AttentionTileKernels attention_tile_kernels;
const AttentionTileKernels attention_tile_kernels = {.softmax = softmax,
                                                     .gradient = gradient,
                                                     .divide_float32 = divide,
                                                     .divide_bfloat16 = divide,
                                                     .dot_float32 = dot,
                                                     .dot_bfloat16 = dot};

}  // namespace annulus::cpu::ANNULUS_ISA
