// Compiled for AMX: no header of the standard library with templates is included here, see attention_tile.cpp.
#include "kernels/cpu/amx_tile.h"

#include "kernels/cpu/amx_multiply.h"

namespace annulus::cpu::amx {
namespace {

inline __mmask32 first(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

// A tile as 16 registers of pairs of terms: a line in each, where its terms are stored side by side.
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

}  // namespace

void pack_a(Panels packed, const Block& block) {
  pack(packed, block, true);
}

void pack_b(Panels packed, const Block& block) {
  pack(packed, block, false);
}

namespace {

// Fetches line by line of the cache what is wanted soon.
class Fetching {
 public:
  explicit Fetching(const Ahead& ahead)
      : ahead_(ahead), rows_(ahead.rows), row_(static_cast<const char*>(ahead.data)) {}

  [[nodiscard]] int64_t lines() const { return ahead_.rows * (ahead_.row_bytes / line_bytes); }

  [[gnu::always_inline]] void advance(int64_t lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      _mm_prefetch(row_ + byte_, _MM_HINT_T1);
      byte_ += line_bytes;
      if (byte_ >= ahead_.row_bytes) byte_ = 0, row_ += ahead_.stride, --rows_;
    }
  }

 private:
  static constexpr int64_t line_bytes = 64;

  const Ahead ahead_;
  int64_t rows_, byte_ = 0;
  const char* row_;
};

}  // namespace

void multiply(const TileProduct& product, const Ahead (&ahead)[2]) {
  const TileRegisters in_use;
  Fetching first(ahead[0]), second(ahead[1]);
  const int64_t steps = product.a_panels * product.b_panels * product.steps;
  const int64_t of_first = (first.lines() + steps - 1) / steps, of_second = (second.lines() + steps - 1) / steps;
  multiply_beside(
      product, [&]() __attribute__((always_inline)) {
        first.advance(of_first);
        second.advance(of_second);
      });
}

}  // namespace annulus::cpu::amx
