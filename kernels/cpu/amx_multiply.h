// For files compiled for AMX: what they share of it, among it products of packed panels with other work between their
// steps.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/amx_tile.h"

namespace annulus::cpu::amx {
namespace {

constexpr int64_t tile_lines = 16, tile_row_bytes = 64;

// Palette 1 with all eight tiles of 16 rows of 64 bytes.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr Configuration configuration;

// The tile registers are in use while this lives.
class TileRegisters {
 public:
  // Not _tile_loadconfig: GCC 12 takes it to read no more than the first 8 bytes.
  TileRegisters() { asm volatile("ldtilecfg %0" ::"m"(configuration)); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
  ~TileRegisters() { _tile_release(); }
};

// 16 registers of 16 numbers of 32 bits.
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

// beside() is called once in each step, of 64 cycles in the unit that multiplies and few elsewhere: what it does costs
// little as long as the product does not depend on it. A panel of b stays in the first-level cache while all of a
// passes.
template <class Beside>
[[gnu::always_inline]] inline void multiply_beside(const TileProduct& product, const Beside& beside) {
  const auto [c, ldc, a, b, a_panels, b_panels, steps, accumulate] = product;
  const int64_t c_bytes = ldc * static_cast<int64_t>(sizeof(float));
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
        beside();
      }
      _tile_stored(0, upper, c_bytes);
      _tile_stored(1, upper + tile_lines, c_bytes);
      _tile_stored(2, lower, c_bytes);
      _tile_stored(3, lower + tile_lines, c_bytes);
    }
  }
}

}  // namespace
}  // namespace annulus::cpu::amx
