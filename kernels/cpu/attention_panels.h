// The products of attention by panels in the tile registers of AMX: an operand is packed once and used by many
// products, and the scores of a few rows are still near when the pass over them begins.
#pragma once

#include "kernels/cpu/attention_amx.h"
#include "kernels/cpu/attention_tiling.h"
#include "kernels/cpu/gemm_in_tiles.h"

namespace annulus::cpu {

// Whether tiles of such queries are computed so: where heads fill the registers.
inline bool goes_by_panels(const View& query) {
  return query.dtype() == DType::bfloat16 && query.dim(2) % amx::panel_lines == 0 && multiplies_in_tiles();
}

inline int64_t whole_panels(int64_t lines) {
  return round_up(lines, amx::panel_lines);
}

// Queries of a tile whose stacked rows fill whole panels.
inline int64_t padded_queries(const QueryTiling& tiling) {
  return ceil_divide(whole_panels(tiling.stacked()), tiling.group);
}

// Room for an operand of so many lines and terms.
inline amx::Panels take_panels(ScratchCutter& cutter, int64_t lines, int64_t terms) {
  const int64_t whole_terms = round_up(terms, amx::step_terms);
  return {cutter.take<bfloat16>(whole_panels(lines) * whole_terms), amx::panel_lines * whole_terms};
}

// Rows of a packed tile, of `terms` elements, as lines; and its columns as lines, of which the rows are the terms.
inline amx::Block row_lines(const void* tile, int64_t ld, int64_t rows, int64_t columns) {
  return {static_cast<const bfloat16*>(tile), ld, false, rows, columns};
}
inline amx::Block column_lines(const void* tile, int64_t ld, int64_t rows, int64_t columns) {
  return {static_cast<const bfloat16*>(tile), ld, true, columns, rows};
}

}  // namespace annulus::cpu
