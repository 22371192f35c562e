// Arguments of the attention operations. A mask is at most two ranges of keys per query row, in global row coordinates, so
// causal, full, windowed and packed attention and their mixtures are one thing. Queries need no coordinate of their own.
//
// Forward (Milakov and Gimelshein, arXiv 1805.02867; Dao, arXiv 2307.08691, section 3.1), for a query row i and its keys j:
//   s_ij = scale · q_i·k_j,  m_i = max_j s_ij,  l_i = Σ_j exp(s_ij − m_i),  o_i = Σ_j exp(s_ij − m_i) v_j / l_i,
//   log_sum_i = m_i + ln l_i.
// Backward, from do_i (arXiv 2307.08691, section 3.2):
//   p_ij = exp(s_ij − log_sum_i),  δ_i = o_i·do_i,  ds_ij = p_ij (do_i·v_j − δ_i),
//   dq_i = scale Σ_j ds_ij k_j,  dk_j = scale Σ_i ds_ij q_i,  dv_j = Σ_i p_ij do_i.
// A row without keys has output 0, log_sum −inf and gradient 0; what its memory and that of keys no row sees holds, NaN
// included, changes nothing.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace annulus {

// The keys one query row sees: [begin0, end0) and [begin1, end1) with begin0 ≤ end0 ≤ begin1 ≤ end1; either may be empty.
struct KeyRanges {
  int32_t begin0 = 0, end0 = 0, begin1 = 0, end1 = 0;
  friend bool operator==(const KeyRanges&, const KeyRanges&) = default;
};
static_assert(sizeof(KeyRanges) == 4 * sizeof(int32_t));

// Consecutive keys and their values; the row of key 0 is global row `first`.
struct KeySlice {
  View key;    // (keys, kv_heads, head_dim)
  View value;  // (keys, kv_heads, head_dim)
  int64_t first = 0;
};

// Where the gradients of a KeySlice go: written, not added to.
struct KeyGradientSlice {
  View key;    // (keys, kv_heads, head_dim) float32
  View value;  // (keys, kv_heads, head_dim) float32
};

// What a row has accumulated so far; attention is resumable because this is all there is.
struct AttentionState {
  View output;   // (rows, heads, head_dim) float32, not yet divided by row_sum
  View row_max;  // (rows, heads) float32
  View row_sum;  // (rows, heads) float32
};

struct AttentionForward {
  View query;                      // (rows, heads, head_dim); heads is a multiple of kv_heads
  View ranges;                     // (rows, 4) int32, each row a KeyRanges
  std::span<const KeySlice> keys;  // any number of slices, also none
  float scale = 1;
  bool first = true;               // start: the state is not read
  bool last = true;                // finish: output and log_sum are written, the state is not
  AttentionState state = {};       // may be empty where first and last are both set
  View output;                     // (rows, heads, head_dim)
  View log_sum;                    // (rows, heads) float32
};

struct AttentionBackward {
  View query;            // (rows, heads, head_dim)
  View ranges;           // (rows, 4) int32
  std::span<const KeySlice> keys;
  float scale = 1;
  View log_sum;          // (rows, heads) float32, from forward
  View delta;            // (rows, heads) float32, from attention_delta
  View output_gradient;  // (rows, heads, head_dim)
  bool first = true;     // query_gradient is written rather than added to
  View query_gradient;   // (rows, heads, head_dim) float32
  std::span<const KeyGradientSlice> key_gradients;  // one for each of keys
};

}  // namespace annulus
