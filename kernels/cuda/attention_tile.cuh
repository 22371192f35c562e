// What the attention kernels compute with: tiles in shared memory, the two kinds of products with them, and which keys
// a row sees.
//
// A block owns rows, 16 for each of its warps, and passes over tiles of the other side: queries over keys in the
// forward pass and for dQ, keys over queries for dK and dV. A warp's scores lie as the mma instruction leaves them:
// scores[j][2·h + e] is row g + 8·h, column 8·j + 2·t + e, with g = lane / 4 and t = lane % 4 (kernels/cuda/ptx.cuh).
//
// bfloat16 goes through the tensor cores. float32 has the same layout and is multiplied by ordinary instructions:
// exact, and not meant to be fast.
#pragma once

#include "kernels/attention.h"
#include "kernels/bfloat16.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/ptx.cuh"

namespace annulus::cuda {

__device__ inline int lane() {
  return thread_index() % warp_size;
}

// Rows of `dims` elements in pieces of 16 bytes, which are permuted within a row so that neither eight rows of one
// column nor eight columns of one row meet in a memory bank.
template <class T, int dims>
class SharedTile {
 public:
  static constexpr int piece = 16 / static_cast<int>(sizeof(T));  // elements
  static constexpr int pieces = dims / piece;                     // of a row

  static constexpr int elements(int rows) { return rows * dims; }

  __device__ explicit SharedTile(const SharedArray<T>& memory) : memory_(memory) {}

  // 16 bytes: elements [column · piece, (column + 1) · piece) of a row.
  __device__ T* address(int row, int column) const {
    constexpr int rows_in_banks = pieces < 8 ? 8 / pieces : 1;
    constexpr int permuted = pieces < 8 ? pieces : 8;
    return memory_.address((row * pieces + (column ^ (row / rows_in_banks % permuted))) * piece);
  }

  // Starts to copy `rows` rows, row i from from + i · stride; those from `there` on and elements from `head_dim` on, a
  // multiple of 8, become zeros.
  template <int rows>
  __device__ void copy(const T* from, int64_t stride, int there, int head_dim) const {
    for (int i = thread_index(); i < rows * pieces; i += block_threads()) {
      const int row = i / pieces, column = i % pieces;
      const bool valid = row < there && column * piece < head_dim;
      cp_async_16(address(row, column), valid ? from + row * stride + column * piece : from, valid);
    }
  }

 private:
  SharedArray<T> memory_;
};

// Cuts a block's shared memory into arrays; the sizes are constants, so kernel and launch agree.
class SharedCutter {
 public:
  template <class T>
  __device__ SharedArray<T> take(int size) {
    const int offset = used_;
    used_ += size * static_cast<int>(sizeof(T));
    return shared_array<T>(offset, size);
  }

 private:
  int used_ = 0;
};

// ---- Products. ----

// scores += own (16 rows from own_row) · otherᵀ (columns rows).
template <int dims, int columns>
__device__ void add_scores(float (&scores)[columns / 8][4], const SharedTile<bfloat16, dims>& own, int own_row,
                           const SharedTile<bfloat16, dims>& other) {
#pragma unroll
  for (int k = 0; k < dims / 16; ++k) {
    uint32_t a[4];
    ldmatrix_x4(a, own.address(own_row + lane() % 16, 2 * k + lane() / 16));
#pragma unroll
    for (int n = 0; n < columns / 16; ++n) {
      uint32_t b[4];
      ldmatrix_x4(b, other.address(16 * n + lane() % 8 + lane() / 16 * 8, 2 * k + lane() / 8 % 2));
      mma_m16n8k16(scores[2 * n], a, b[0], b[1]);
      mma_m16n8k16(scores[2 * n + 1], a, b[2], b[3]);
    }
  }
}

template <int dims, int columns>
__device__ void add_scores(float (&scores)[columns / 8][4], const SharedTile<float, dims>& own, int own_row,
                           const SharedTile<float, dims>& other) {
  const int g = lane() / 4, t = lane() % 4;
  for (int k = 0; k < dims / 4; ++k) {
    float rows[2][4];
    for (int h = 0; h < 2; ++h) load(rows[h], own.address(own_row + g + 8 * h, k));
#pragma unroll
    for (int i = 0; i < columns / 4; ++i) {  // column 8·(i / 2) + 2·t + i % 2
      float column[4];
      load(column, other.address(i / 2 * 8 + 2 * t + i % 2, k));
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        scores[i / 2][i % 2] += rows[0][d] * column[d];
        scores[i / 2][2 + i % 2] += rows[1][d] * column[d];
      }
    }
  }
}

// Of the columns a lane holds, those that some row of its warp sees: bit 2·j + e is column 8·j + 2·t + e.
struct SeenColumns {
  uint32_t bits;
};

__device__ inline uint32_t halves(uint32_t two_bits) {
  return ((two_bits & 1U) != 0 ? 0xFFFFU : 0U) | ((two_bits & 2U) != 0 ? 0xFFFF0000U : 0U);
}

// sums += weights · other, with the weights rounded to bfloat16. Where `masked`, rows of other that no row sees count
// as zeros whatever they hold, since zero times NaN is NaN.
template <bool masked, int dims, int columns>
__device__ void add_product(float (&sums)[dims / 8][4], const float (&weights)[columns / 8][4],
                            const SharedTile<bfloat16, dims>& other, SeenColumns seen) {
#pragma unroll
  for (int k = 0; k < columns / 16; ++k) {
    const auto& low = weights[2 * k];
    const auto& high = weights[2 * k + 1];
    const uint32_t a[4] = {cvt_rn_bf16x2(low[1], low[0]), cvt_rn_bf16x2(low[3], low[2]),
                           cvt_rn_bf16x2(high[1], high[0]), cvt_rn_bf16x2(high[3], high[2])};
    const uint32_t keep_low = halves(seen.bits >> (4 * k)), keep_high = halves(seen.bits >> (4 * k + 2));
#pragma unroll
    for (int n = 0; n < dims / 16; ++n) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, other.address(16 * k + lane() % 16, 2 * n + lane() / 16));
      if constexpr (masked) {
        b[0] &= keep_low, b[1] &= keep_high;
        b[2] &= keep_low, b[3] &= keep_high;
      }
      mma_m16n8k16(sums[2 * n], a, b[0], b[1]);
      mma_m16n8k16(sums[2 * n + 1], a, b[2], b[3]);
    }
  }
}

template <bool masked, int dims, int columns>
__device__ void add_product(float (&sums)[dims / 8][4], const float (&weights)[columns / 8][4],
                            const SharedTile<float, dims>& other, SeenColumns seen) {
  const int t = lane() % 4, first_of_row = lane() - t;
#pragma unroll
  for (int i = 0; i < columns / 4; ++i) {
    const int j = i / 2, e = i % 2;
#pragma unroll 1
    for (int holder = 0; holder < 4; ++holder) {  // who has column 8·j + 2·holder + e
      const float upper = shfl_sync_idx(weights[j][e], first_of_row + holder);
      const float lower = shfl_sync_idx(weights[j][2 + e], first_of_row + holder);
      if constexpr (masked) {
        if ((shfl_sync_idx(seen.bits, holder) >> i & 1U) == 0) continue;  // the same for the whole warp
      }
#pragma unroll
      for (int n = 0; n < dims / 8; ++n) {
        float element[2];
        load(element, other.address(8 * j + 2 * holder + e, (8 * n + 2 * t) / 4) + 2 * t % 4);
        for (int c = 0; c < 2; ++c) {
          sums[n][c] += upper * element[c];
          sums[n][2 + c] += lower * element[c];
        }
      }
    }
  }
}

// ---- Exponentials. ----

inline constexpr float log2_e = 1.4426950408889634F;

// exp(scale · score − shift), scale > 0. For float32 the product is rounded by itself, so that a score that is its own
// shift gives exactly 1; for bfloat16 the exponent is taken to base 2 in one fused step.
template <class T>
struct Exponential {
  static constexpr bool exact = std::is_same_v<T, float>;
  float scale;

  __device__ float scaled(float score) const { return mul_rn(score, scale); }
  __device__ float difference(float a, float b) const { return exact ? expf(a - b) : ex2_approx_ftz((a - b) * log2_e); }
  __device__ float operator()(float score, float shift) const {
    if constexpr (exact) return expf(mul_rn(score, scale) - shift);
    return ex2_approx_ftz(fmaf(score, scale * log2_e, -shift * log2_e));
  }
};

// ---- Which keys are seen. ----

// Rows that somebody sees have numbers of 32 bits, as KeyRanges has, so inside a tile no more is needed.
__device__ inline bool sees(const KeyRanges& ranges, int32_t key) {
  return (key >= ranges.begin0 && key < ranges.end0) || (key >= ranges.begin1 && key < ranges.end1);
}

// Two ranges, each as its begin and its length, so that a position is looked for by one comparison.
struct Places {
  int begin0, size0, begin1, size1;

  // The keys of `ranges` among [first, first + keys), counted from `first`.
  __device__ static Places of(const KeyRanges& ranges, int32_t first, int keys) {
    const auto clip = [&](int32_t key) {
      const int place = key - first;
      return place < 0 ? 0 : place > keys ? keys : place;
    };
    const int begin0 = clip(ranges.begin0), begin1 = clip(ranges.begin1);
    return {begin0, clip(ranges.end0) - begin0, begin1, clip(ranges.end1) - begin1};
  }

  [[nodiscard]] __device__ bool hold(int place) const {
    return static_cast<uint32_t>(place - begin0) < static_cast<uint32_t>(size0) ||
           static_cast<uint32_t>(place - begin1) < static_cast<uint32_t>(size1);
  }
};

// seen_by(h, column) says what row g + 8·h sees; hide(j, i) is called for each score [j][i] that is not seen. Returns
// which of a lane's columns are seen by some row of the warp.
template <int columns, class Sees, class Hide>
__device__ SeenColumns mask_scores(const Sees& seen_by, const Hide& hide) {
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < columns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool seen = seen_by(i / 2, 8 * j + lane() % 4 * 2 + i % 2);
      if (!seen) hide(j, i);
      bits |= static_cast<uint32_t>(seen) << (2 * j + i % 2);
    }
  }
  for (int mask = 4; mask < warp_size; mask *= 2) bits |= shfl_sync_bfly(bits, mask);
  return {bits};
}

// What the rows of a block see together: `outer` ranges hold all their keys, `inner` ones the keys that every row sees.
struct Hull {
  KeyRanges outer, inner;

  // Every lane of each warp takes part; ranges of rows from `there` on do not count.
  __device__ static Hull of(const SharedArray<KeyRanges>& ranges, int there) {
    constexpr int highest = 0x7FFFFFFF;
    int least[8];  // of begins, and of ends with their sign changed: outer of both ranges, then inner
    for (int& value : least) value = highest;
    const auto lower = [](int& value, int other) { value = other < value ? other : value; };
    for (int row = lane(); row < there; row += warp_size) {
      const KeyRanges r = ranges[row];
      if (r.begin0 < r.end0) lower(least[0], r.begin0), lower(least[1], -r.end0);
      if (r.begin1 < r.end1) lower(least[2], r.begin1), lower(least[3], -r.end1);
      lower(least[4], -r.begin0), lower(least[5], r.end0);
      lower(least[6], -r.begin1), lower(least[7], r.end1);
    }
    for (int& value : least) {
      for (int mask = 1; mask < warp_size; mask *= 2) lower(value, shfl_sync_bfly(value, mask));
    }
    return {{least[0], -least[1], least[2], -least[3]}, {-least[4], least[5], -least[6], least[7]}};
  }

  // The first key from `key` on inside the outer ranges; beyond all keys if there is none.
  [[nodiscard]] __device__ int64_t next_key(int64_t key) const {
    int64_t next = INT64_MAX;
    if (key < outer.end0 && outer.begin0 < outer.end0) next = key < outer.begin0 ? outer.begin0 : key;
    if (key < outer.end1 && outer.begin1 < outer.end1) {
      const int64_t other = key < outer.begin1 ? outer.begin1 : key;
      next = other < next ? other : next;
    }
    return next;
  }

  // Whether every row sees all of [first, last).
  [[nodiscard]] __device__ bool all_see(int64_t first, int64_t last) const {
    return (inner.begin0 <= first && last <= inner.end0) || (inner.begin1 <= first && last <= inner.end1);
  }
};

}  // namespace annulus::cuda
