// Attention on packed tiles in the registers of AMX, the passes over scores beside the products: while one panel is
// multiplied, the exponentials of another are taken. Operands and results as in attention_tile.h, all bfloat16 or
// float32 as said; the formulas are those of kernels/attention.h.
#pragma once

#include "kernels/cpu/amx_tile.h"
#include "kernels/cpu/attention_tile.h"

namespace annulus::cpu::amx {

// Between the rows of scores in ForwardPanels.
inline constexpr int64_t score_padding = 16;

// Rows of queries against a tile of keys: the running softmax, and O += P·V. Rows and columns are multiples of 32,
// head_dim is one. Columns nobody in a panel sees are left out; a row that sees nothing keeps its state bitwise.
struct ForwardPanels {
  Panels query;  // lines: rows, terms: head_dim
  Panels key;    // lines: columns, terms: head_dim
  Panels value;  // lines: head_dim, terms: columns
  const ColumnRanges*
      ranges;  // of rows / group queries, from the column that comes first_column before the tile's first
  int64_t rows, columns, group, head_dim, first_column;
  float scale;
  float* output;   // (rows, head_dim)
  float* row_max;  // (rows)
  float* row_sum;  // (rows)
  // Room, twice each: of the panel that is multiplied and of the one before.
  float* scores[2];       // (32, columns + score_padding)
  Panels probability[2];  // lines: 32 rows, terms: columns
};
void attend(const ForwardPanels& tile);

// Rows of BackwardPanels that are passed over at a time, against 32 columns.
inline constexpr int64_t block_rows = 64;

// The gradients of rows of queries against a tile of keys, by panels of keys. Rows and columns are multiples of 32,
// as is head_dim; columns nobody sees are not left out here.
struct BackwardPanels {
  Panels key_rows, value_rows;             // a; lines: columns, terms: head_dim
  Panels key_columns;                      // a; lines: head_dim, terms: columns
  Panels query_rows, gradient_rows;        // b; lines: rows, terms: head_dim; gradient is that of the output
  Panels query_columns, gradient_columns;  // b; lines: head_dim, terms: rows
  const ColumnRanges* ranges;              // as in ForwardPanels
  const float* log_sum;                    // (rows)
  const float* delta;                      // (rows)
  int64_t rows, columns, group, head_dim, first_column;
  float scale;
  float* key_gradient;    // (columns, head_dim): added to, divided by scale
  float* value_gradient;  // (columns, head_dim): added to
  float* query_gradient;  // (head_dim, rows): written, divided by scale
  // Room, twice each: of the panel that is multiplied and of the one before.
  float *scores[2], *score_gradients[2];               // (32, block_rows)
  Panels probability_rows[2], score_gradient_rows[2];  // a; lines: 32 columns, terms: rows
  Panels score_gradient_columns;                       // b; lines: rows, terms: columns
  int32_t* bounds;                                     // (4, rows)
};
void differentiate(const BackwardPanels& tile);

// Adds scale times such a query gradient to its queries; the heads that share a key head lie side by side.
struct QueryGradient {
  const float* sum;  // (head_dim, rows)
  int64_t rows, queries, group, head_dim;
  float scale;
  float* to;       // of the first query
  int64_t stride;  // elements from one query to the next
};
void add(const QueryGradient& gradient);

}  // namespace annulus::cpu::amx
