// Products of bfloat16 blocks in the tile registers of AMX: what of gemm_in_tiles.h needs its instructions.
//
// A packed block is a run of panels of 32 lines; a line is a row of op(A) or a column of op(B). A panel holds, for
// every step of 32 terms, two tiles of 16 lines, 1 KiB each, in the order the registers want. Lines and terms that do
// not exist are zeros.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"

namespace annulus::cpu::amx {

inline constexpr int64_t panel_lines = 32, step_terms = 32, tile_elements = 512;

// A block of op(A) or op(B) where it is stored: element (line, term) is source[line · ld + term], or
// source[term · ld + line] if lines_are_columns.
struct Block {
  const bfloat16* source;
  int64_t ld;
  bool lines_are_columns;
  int64_t lines, terms;
};

// Where a packed block lies.
struct Panels {
  bfloat16* data;
  int64_t stride;  // elements from one panel to the next

  // From a line and a term on, both multiples of 32.
  [[nodiscard]] Panels from(int64_t line, int64_t term) const {
    return {data + line / panel_lines * stride + term * panel_lines, stride};
  }
};

void pack_a(Panels packed, const Block& block);
void pack_b(Panels packed, const Block& block);

// Memory that is wanted soon: rows of so many bytes, `stride` bytes apart, to be fetched into the second-level cache.
struct Ahead {
  const void* data = nullptr;
  int64_t rows = 0, row_bytes = 0, stride = 0;
};

// C = A·B or C += A·B over whole panels of packed a and b; each element is summed from its first term to its last, in
// float32. Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS.
struct TileProduct {
  float* c;  // (32 · a_panels, 32 · b_panels)
  int64_t ldc;
  Panels a, b;
  int64_t a_panels, b_panels, steps;
  bool accumulate;
};
void multiply(const TileProduct& product, const Ahead (&ahead)[2]);

}  // namespace annulus::cpu::amx
