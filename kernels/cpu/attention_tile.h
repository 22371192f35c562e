// The element-wise passes of attention between its matrix products, on one tile in scratch. Compiled once for each
// instruction set; the formulas are those of kernels/attention.h.
//
// Rows are queries times the query heads that share a key head: row = query · group + head in group. Columns are keys.
// A tile is `rows` of them from first_row on and `width` columns from first_column on, a multiple of 16; its scores are
// aligned to 64 bytes.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"

namespace annulus::cpu {

// The columns a row sees: [begin0, end0) and [begin1, end1).
struct ColumnRanges {
  int32_t begin0, end0, begin1, end1;
};

// One step of the running softmax over a tile of keys. Columns a row does not see become 0 whatever they held; a row
// that sees nothing keeps its state bitwise.
struct SoftmaxTile {
  float* scores;               // (rows, width) q·k: replaced by p = exp(scale·q·k − row_max)
  float* output;               // (rows, head_dim): rescaled from the old row_max to the new
  float* row_max;              // (rows), −inf where nothing was seen yet
  float* row_sum;              // (rows)
  const ColumnRanges* ranges;  // of all queries
  int64_t first_row, first_column, rows, width, group, head_dim;
  float scale;
  bool round;  // p is rounded to bfloat16, packed into the first half of each row of scores
};

// Probabilities and score gradients of a tile. Columns a row does not see become 0 whatever they held; log_sum and
// delta of a row that sees nothing are not used.
struct GradientTile {
  float* scores;               // (rows, width) q·k: replaced by p = exp(scale·q·k − log_sum)
  float* gradients;            // (rows, width) do·v: replaced by scale · p (do·v − delta)
  const float* log_sum;        // (rows)
  const float* delta;          // (rows)
  const ColumnRanges* ranges;  // of all queries
  int64_t first_row, first_column, rows, width, group;
  float scale;
  bool round;  // both are rounded to bfloat16, packed into the first half of each row
};

struct AttentionTileKernels {
  void (*softmax)(const SoftmaxTile& tile);
  void (*gradient)(const GradientTile& tile);
  // out = in / divisor, over n elements.
  void (*divide_float32)(float* out, const float* in, float divisor, int64_t n);
  void (*divide_bfloat16)(bfloat16* out, const float* in, float divisor, int64_t n);
  // The sum of a·b over n elements.
  float (*dot_float32)(const float* a, const float* b, int64_t n);
  float (*dot_bfloat16)(const bfloat16* a, const bfloat16* b, int64_t n);
};

// By what -march is called: x86-64-v2, v3 (AVX2 and FMA), v4 (AVX-512), and v4 with AVX512-BF16, which rounds.
namespace v2 {
extern const AttentionTileKernels attention_tile_kernels;
}
namespace v3 {
extern const AttentionTileKernels attention_tile_kernels;
}
namespace v4 {
extern const AttentionTileKernels attention_tile_kernels;
}
namespace v4_bf16 {
extern const AttentionTileKernels attention_tile_kernels;
}

}  // namespace annulus::cpu
