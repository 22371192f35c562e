// Compiled for AMX: no header of the standard library with templates is included here, see attention_tile.cpp.
#include "kernels/cpu/amx_tile.h"

#include <immintrin.h>

namespace annulus::cpu::amx {
namespace {

constexpr int64_t tile_lines = 16, tile_row_bytes = 64;

// A tile as 16 registers of 32-bit pairs of terms: either a line in each, with its 16 pairs, or a pair of terms in
// each, with its 16 lines.
using Tile = __m512i[16];

// Rows of 16 become columns.
inline void transpose(Tile& t) {
  Tile u;
  for (int i = 0; i < 16; i += 2) {
    u[i] = _mm512_unpacklo_epi32(t[i], t[i + 1]);
    u[i + 1] = _mm512_unpackhi_epi32(t[i], t[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    t[i] = _mm512_unpacklo_epi64(u[i], u[i + 2]);
    t[i + 1] = _mm512_unpackhi_epi64(u[i], u[i + 2]);
    t[i + 2] = _mm512_unpacklo_epi64(u[i + 1], u[i + 3]);
    t[i + 3] = _mm512_unpackhi_epi64(u[i + 1], u[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    u[i] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
    u[i + 4] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
    u[i + 8] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
    u[i + 12] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(u[i], u[i + 8], 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(u[i], u[i + 8], 0xdd);
    t[i + 4] = _mm512_shuffle_i32x4(u[i + 4], u[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(u[i + 4], u[i + 12], 0xdd);
  }
}

inline __mmask32 first(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

// A line in each register, where its terms are stored side by side.
inline void load_lines(Tile& tile, const bfloat16* source, int64_t ld, int64_t lines, int64_t terms) {
  const __mmask32 mask = first(terms);
  for (int64_t i = 0; i < tile_lines; ++i) {
    tile[i] = i < lines ? _mm512_maskz_loadu_epi16(mask, source + i * ld) : _mm512_setzero_si512();
  }
}

// A pair of terms in each register, where lines are stored side by side.
inline void load_pairs(Tile& tile, const bfloat16* source, int64_t ld, int64_t lines, int64_t terms) {
  const __mmask16 mask = static_cast<__mmask16>(first(lines));
  const auto row = [&](int64_t term) {
    return _mm512_cvtepu16_epi32(term < terms ? _mm256_maskz_loadu_epi16(mask, source + term * ld)
                                              : _mm256_setzero_si256());
  };
  for (int64_t i = 0; i < tile_lines; ++i) {
    tile[i] = _mm512_or_si512(row(2 * i), _mm512_slli_epi32(row(2 * i + 1), 16));
  }
}

// A's tiles have a line in each row, B's a pair of terms.
void pack(Panels panels, const Block& block, bool lines_in_rows) {
  for (int64_t panel = 0; panel < block.lines; panel += panel_lines, panels.data += panels.stride) {
    bfloat16* packed = panels.data;
    for (int64_t term = 0; term < block.terms; term += step_terms) {
      for (int64_t line = panel; line < panel + panel_lines; line += tile_lines, packed += tile_elements) {
        Tile tile;
        const int64_t lines = block.lines - line, terms = block.terms - term;
        if (lines <= 0) {
          for (__m512i& row : tile) row = _mm512_setzero_si512();
        } else if (block.lines_are_columns) {
          load_pairs(tile, block.source + term * block.ld + line, block.ld, lines, terms);
          if (lines_in_rows) transpose(tile);
        } else {
          load_lines(tile, block.source + line * block.ld + term, block.ld, lines, terms);
          if (!lines_in_rows) transpose(tile);
        }
        for (int i = 0; i < 16; ++i) _mm512_store_si512(packed + i * 32, tile[i]);
      }
    }
  }
}

// Palette 1 with all eight tiles of 16 rows of 64 bytes.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr Configuration configuration;

}  // namespace

void pack_a(Panels packed, const Block& block) {
  pack(packed, block, true);
}

void pack_b(Panels packed, const Block& block) {
  pack(packed, block, false);
}

// A panel of b stays in the first-level cache while all of a passes.
void multiply(const TileProduct& product) {
  const auto [c, ldc, a, b, a_panels, b_panels, steps, accumulate] = product;
  const int64_t c_bytes = ldc * static_cast<int64_t>(sizeof(float));
  // Not _tile_loadconfig: GCC 12 takes it to read no more than the first 8 bytes.
  asm volatile("ldtilecfg %0" ::"m"(configuration));
  for (int64_t column = 0; column < b_panels; ++column) {
    for (int64_t row = 0; row < a_panels; ++row) {
      float* const upper = c + row * panel_lines * ldc + column * panel_lines;
      float* const lower = upper + tile_lines * ldc;
      if (accumulate) {
        _tile_loadd(0, upper, c_bytes);
        _tile_loadd(1, upper + tile_lines, c_bytes);
        _tile_loadd(2, lower, c_bytes);
        _tile_loadd(3, lower + tile_lines, c_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      const bfloat16* a_tiles = a.data + row * a.stride;
      const bfloat16* b_tiles = b.data + column * b.stride;
      for (int64_t step = 0; step < steps; ++step, a_tiles += 2 * tile_elements, b_tiles += 2 * tile_elements) {
        _tile_loadd(6, b_tiles, tile_row_bytes);
        _tile_loadd(4, a_tiles, tile_row_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b_tiles + tile_elements, tile_row_bytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a_tiles + tile_elements, tile_row_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, upper, c_bytes);
      _tile_stored(1, upper + tile_lines, c_bytes);
      _tile_stored(2, lower, c_bytes);
      _tile_stored(3, lower + tile_lines, c_bytes);
    }
  }
  _tile_release();
}

}  // namespace annulus::cpu::amx
