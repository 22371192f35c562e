// Compiled for AMX: no header of the standard library with templates is included here, see attention_tile.cpp.
#include "kernels/cpu/attention_amx.h"

#include "kernels/cpu/amx_multiply.h"

namespace annulus::cpu::amx {
namespace {

constexpr int64_t lanes = 16;
constexpr float infinity = __builtin_inff();
constexpr float log2_e = 1.44269504088896341F;

// 2^x for x ≤ 127, relative error below 2e-7; NaN stays NaN, below 2^−149 it is 0. With n = round(x), 2^(x − n) is the
// polynomial of degree 5 with the least largest relative error on [−1/2, 1/2], found by Lawson's iteration.
inline __m512 exp2(__m512 x) {
  const __m512 shift = _mm512_set1_ps(12582912.0F);  // 1.5·2^23: adding it rounds to an integer
  x = _mm512_max_ps(_mm512_set1_ps(-151.0F), x);     // of a NaN and a number the second
  const __m512 n = _mm512_sub_ps(_mm512_add_ps(x, shift), shift), r = _mm512_sub_ps(x, n);
  const auto horner = [&](__m512 p, float coefficient) { return _mm512_fmadd_ps(p, r, _mm512_set1_ps(coefficient)); };
  __m512 p = horner(_mm512_set1_ps(1.3276471952e-3F), 9.6755413341e-3F);
  p = horner(horner(p, 5.5507132736e-2F), 2.4022119724e-1F);
  p = horner(horner(p, 6.9314696706e-1F), 1.0F);
  return _mm512_scalef_ps(p, n);
}

inline float exp(float x) {
  return _mm512_cvtss_f32(exp2(_mm512_set1_ps(x * log2_e)));
}

// Columns [begin, end).
struct Span {
  int64_t begin, end;
  [[nodiscard]] bool empty() const { return begin >= end; }
  [[nodiscard]] int64_t count() const { return end - begin; }
};

inline void widen(Span& span, int64_t begin, int64_t end) {
  if (begin >= end) return;
  if (begin < span.begin) span.begin = begin;
  if (end > span.end) span.end = end;
}

// The columns from `first` on that one row sees, of `columns`.
struct RowMask {
  RowMask(const ColumnRanges& r, int64_t first, int64_t columns)
      : range0(within(r.begin0, r.end0, first, columns)), range1(within(r.begin1, r.end1, first, columns)) {
    whole = range0.empty() ? range1 : range0;
  }

  static Span within(int64_t begin, int64_t end, int64_t first, int64_t columns) {
    begin -= first, end -= first;
    return {begin < 0 ? 0 : begin, end > columns ? columns : end};
  }

  [[nodiscard]] bool empty() const { return range0.empty() && range1.empty(); }
  // Whether so many columns from `column` on are all seen; false also where it takes more to find out.
  [[nodiscard]] bool sees_whole(int64_t column, int64_t count) const {
    return column >= whole.begin && column + count <= whole.end;
  }
  [[nodiscard]] __mmask16 at(int64_t column) const {
    const __m512i j = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(column)),
                                       _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    return in(range0, j) | in(range1, j);
  }
  static __mmask16 in(const Span& span, __m512i j) {
    return _mm512_cmpge_epi32_mask(j, _mm512_set1_epi32(static_cast<int>(span.begin))) &
           _mm512_cmplt_epi32_mask(j, _mm512_set1_epi32(static_cast<int>(span.end)));
  }

  Span range0, range1, whole;
};

// A panel of 32 rows of ForwardPanels, against the columns that some of them see. After the last it has none.
struct ForwardPanel {
  ForwardPanel(const ForwardPanels& forward, int64_t first_row) : tile(&forward), row(first_row) {
    if (is_end()) return;
    columns.begin = tile->columns;
    for (int64_t query = row / tile->group; query <= (row + panel_lines - 1) / tile->group; ++query) {
      const RowMask mask(tile->ranges[query], tile->first_column, tile->columns);
      widen(columns, mask.range0.begin, mask.range0.end);
      widen(columns, mask.range1.begin, mask.range1.end);
    }
    columns.begin = columns.begin / panel_lines * panel_lines;
    columns.end = (columns.end + panel_lines - 1) / panel_lines * panel_lines;
    if (columns.empty()) columns = {0, 0};
  }

  // The first from this one on that sees any column.
  [[nodiscard]] ForwardPanel or_next() const {
    ForwardPanel panel = *this;
    while (!panel.is_end() && panel.columns.empty()) panel = ForwardPanel(*tile, panel.row + panel_lines);
    return panel;
  }

  [[nodiscard]] bool is_end() const { return row >= tile->rows; }
  // Rows of scores a power of two apart would share a few sets of the first-level cache.
  [[nodiscard]] int64_t score_stride() const { return columns.count() + score_padding; }
  // Of either product.
  [[nodiscard]] int64_t steps() const { return columns.count() / panel_lines * (tile->head_dim / step_terms); }
  [[nodiscard]] RowMask mask(int64_t i) const {
    return {tile->ranges[(row + i) / tile->group], tile->first_column + columns.begin, columns.count()};
  }

  template <class Beside>
  [[gnu::always_inline]] void multiply_scores(float* scores, const Beside& beside) const {
    multiply_beside({.c = scores,
                     .ldc = score_stride(),
                     .a = tile->query.from(row, 0),
                     .b = tile->key.from(columns.begin, 0),
                     .a_panels = 1,
                     .b_panels = columns.count() / panel_lines,
                     .steps = tile->head_dim / step_terms,
                     .accumulate = false},
                    beside);
  }

  template <class Beside>
  [[gnu::always_inline]] void multiply_output(Panels probability, const Beside& beside) const {
    multiply_beside({.c = tile->output + row * tile->head_dim,
                     .ldc = tile->head_dim,
                     .a = probability,
                     .b = tile->value.from(0, columns.begin),
                     .a_panels = 1,
                     .b_panels = columns.empty() ? 0 : tile->head_dim / panel_lines,
                     .steps = columns.count() / step_terms,
                     .accumulate = true},
                    beside);
  }

  // Takes the scores into row_max, and rescales what the rows have summed.
  void update_maxima(const float* scores) const {
    if (is_end()) return;
    for (int64_t i = 0; i < panel_lines; ++i, scores += score_stride()) {
      const RowMask row_mask = mask(i);
      if (row_mask.empty()) continue;
      float& row_max = tile->row_max[row + i];
      const float largest = maximum(scores, row_mask) * tile->scale, before = row_max;
      if (!(largest > before)) continue;
      row_max = largest;
      if (before == -infinity) continue;  // nothing is summed yet
      const float factor = exp(before - largest);
      tile->row_sum[row + i] *= factor;
      float* const output = tile->output + (row + i) * tile->head_dim;
      for (int64_t d = 0; d < tile->head_dim; d += lanes) {
        _mm512_storeu_ps(output + d, _mm512_mul_ps(_mm512_loadu_ps(output + d), _mm512_set1_ps(factor)));
      }
    }
  }

  [[nodiscard]] float maximum(const float* scores, const RowMask& row_mask) const {
    const __m512 lowest = _mm512_set1_ps(-infinity);
    __m512 first = lowest, second = lowest;
    for (int64_t j = 0; j < columns.count(); j += 2 * lanes) {
      const __m512 a = _mm512_loadu_ps(scores + j), b = _mm512_loadu_ps(scores + j + lanes);
      if (row_mask.sees_whole(j, 2 * lanes)) {
        first = _mm512_max_ps(a, first), second = _mm512_max_ps(b, second);
      } else {
        first = _mm512_mask_max_ps(first, row_mask.at(j), a, first);
        second = _mm512_mask_max_ps(second, row_mask.at(j + lanes), b, second);
      }
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(first, second));
  }

  const ForwardPanels* tile;
  int64_t row;
  Span columns{0, 0};
};

// From the scores of a panel to its probabilities and their sums. A unit is 32 columns of a row.
class ProbabilityPass {
 public:
  ProbabilityPass(const ForwardPanel& panel, const float* scores, Panels probability)
      : panel_(panel),
        units_(panel_lines * panel.columns.count() / step_terms),
        scores_(scores),
        base_(probability.data),
        scale_(_mm512_set1_ps(panel.tile->scale * log2_e)) {
    begin_row();
  }

  [[nodiscard]] int64_t units() const { return units_; }  // that are left

  [[gnu::always_inline]] void advance(int64_t units) {
    for (units = least(units, units_), units_ -= units; units > 0;) {
      const int64_t here = least(units, (panel_.columns.count() - column_) / step_terms);
      take(here);
      units -= here;
      if (column_ == panel_.columns.count()) end_row();
    }
  }

 private:
  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  [[gnu::always_inline]] void take(int64_t units) {
    const float* scores = scores_ + column_;
    bfloat16* out = out_;
    __m512 total = total_;
    for (const int64_t end = column_ + units * step_terms; column_ < end; column_ += step_terms) {
      __m512 low = exp2(_mm512_fmsub_ps(_mm512_loadu_ps(scores), scale_, shift_));
      __m512 high = exp2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + lanes), scale_, shift_));
      if (!mask_.sees_whole(column_, step_terms)) {
        low = _mm512_maskz_mov_ps(mask_.at(column_), low);
        high = _mm512_maskz_mov_ps(mask_.at(column_ + lanes), high);
      }
      total = _mm512_add_ps(total, _mm512_add_ps(low, high));
      _mm512_store_si512(out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
      scores += step_terms, out += 2 * tile_elements;
    }
    total_ = total, out_ = out;
  }

  void begin_row() {
    mask_ = panel_.mask(row_);
    const float row_max = panel_.tile->row_max[panel_.row + row_];
    // −inf − −inf is avoided where every score so far is −inf.
    shift_ = _mm512_set1_ps(row_max == -infinity ? 0.0F : row_max * log2_e);
    total_ = _mm512_setzero_ps();
    out_ = base_ + row_ / tile_lines * tile_elements + row_ % tile_lines * step_terms;
    column_ = 0;
  }

  void end_row() {
    panel_.tile->row_sum[panel_.row + row_] += _mm512_reduce_add_ps(total_);
    scores_ += panel_.score_stride();
    if (++row_ < panel_lines) begin_row();
  }

  const ForwardPanel& panel_;
  int64_t units_;
  const float* scores_;  // of the row
  bfloat16* base_;
  __m512 scale_, shift_{}, total_{};
  int64_t row_ = 0, column_ = 0;
  bfloat16* out_ = nullptr;
  RowMask mask_{{}, 0, 0};
};

// How much of a pass goes beside one step of products of so many.
int64_t share_of(int64_t units, int64_t steps) {
  return steps == 0 ? 0 : (units + steps - 1) / steps;
}

// What the rows of BackwardPanels see, a vector of rows at a time.
class RowBounds {
 public:
  explicit RowBounds(const BackwardPanels& tile) : bounds_(tile.bounds), rows_(tile.rows) {
    for (int64_t row = 0; row < rows_; ++row) {
      const RowMask mask(tile.ranges[row / tile.group], tile.first_column, tile.columns);
      const int64_t values[4] = {mask.range0.begin, mask.range0.end, mask.range1.begin, mask.range1.end};
      for (int64_t i = 0; i < 4; ++i) bounds_[i * rows_ + row] = static_cast<int32_t>(values[i]);
      if (mask.whole.begin > whole_.begin) whole_.begin = mask.whole.begin;
      if (mask.whole.end < whole_.end) whole_.end = mask.whole.end;
    }
  }

  // Whether every row sees all of so many columns; false also where it takes more to find out.
  [[nodiscard]] bool all_see(int64_t column, int64_t count) const {
    return column >= whole_.begin && column + count <= whole_.end;
  }
  // Which of 16 rows see a column.
  [[nodiscard]] __mmask16 at(int64_t row, int64_t column) const {
    const __m512i j = _mm512_set1_epi32(static_cast<int>(column));
    const auto bound = [&](int64_t i) { return _mm512_loadu_si512(bounds_ + i * rows_ + row); };
    return (_mm512_cmpge_epi32_mask(j, bound(0)) & _mm512_cmplt_epi32_mask(j, bound(1))) |
           (_mm512_cmpge_epi32_mask(j, bound(2)) & _mm512_cmplt_epi32_mask(j, bound(3)));
  }

 private:
  int32_t* bounds_;
  int64_t rows_;
  Span whole_{0, int64_t{1} << 31};  // what every row sees
};

// 32 columns of BackwardPanels against up to block_rows of its rows; after the last there are none.
struct BackwardBlock {
  BackwardBlock(const BackwardPanels& backward, int64_t first_column, int64_t first_row)
      : tile(&backward), column(first_column), row(first_row), rows(tile->rows - row) {
    if (rows > block_rows) rows = block_rows;
    if (column >= tile->columns) rows = 0;
  }

  // Rows first, so that a panel of columns is done before the next begins.
  [[nodiscard]] BackwardBlock next() const {
    return row + rows < tile->rows ? BackwardBlock(*tile, column, row + rows)
                                   : BackwardBlock(*tile, column + panel_lines, 0);
  }

  [[nodiscard]] bool is_end() const { return rows == 0; }
  // Which of two rooms is used for the panel of columns.
  [[nodiscard]] int64_t room() const { return column / panel_lines % 2; }

  // S = K·Qᵀ and dP = V·dOᵀ, (32, rows) each.
  template <class Beside>
  [[gnu::always_inline]] void multiply_scores(int64_t which, const Beside& beside) const {
    multiply_rows(tile->key_rows, tile->query_rows, tile->scores[which], beside);
    multiply_rows(tile->value_rows, tile->gradient_rows, tile->score_gradients[which], beside);
  }
  [[nodiscard]] int64_t score_steps() const { return 2 * (rows / panel_lines) * (tile->head_dim / step_terms); }

  template <class Beside>
  [[gnu::always_inline]] void multiply_rows(Panels a, Panels b, float* c, const Beside& beside) const {
    multiply_beside({.c = c,
                     .ldc = block_rows,
                     .a = a.from(column, 0),
                     .b = b.from(row, 0),
                     .a_panels = 1,
                     .b_panels = rows / panel_lines,
                     .steps = tile->head_dim / step_terms,
                     .accumulate = false},
                    beside);
  }

  const BackwardPanels* tile;
  int64_t column, row, rows;
};

// dV += Pᵀ·dO and dK += dSᵀ·Q of 32 columns, over all rows, by parts of 32 elements of a head: first those of dV, then
// those of dK.
struct GradientParts {
  // Of the panel of columns before a block those that are done beside it: as large a part of all as the block is of the
  // rows.
  static GradientParts beside(const BackwardBlock& block) {
    const BackwardPanels& tile = *block.tile;
    const int64_t all = block.column == 0 ? 0 : 2 * tile.head_dim / panel_lines;
    return {&tile, block.column - panel_lines, all * block.row / tile.rows, all * (block.row + block.rows) / tile.rows};
  }
  static GradientParts of_last(const BackwardPanels& tile) {
    return {&tile, tile.columns - panel_lines, 0, 2 * tile.head_dim / panel_lines};
  }

  template <class Beside>
  [[gnu::always_inline]] void multiply(const Beside& beside) const {
    const int64_t parts = tile->head_dim / panel_lines, room = column / panel_lines % 2;
    for (int64_t part = first; part < end; ++part) {
      const bool of_values = part < parts;
      const int64_t element = part % parts * panel_lines;
      multiply_beside({.c = (of_values ? tile->value_gradient : tile->key_gradient) + column * tile->head_dim + element,
                       .ldc = tile->head_dim,
                       .a = (of_values ? tile->probability_rows : tile->score_gradient_rows)[room],
                       .b = (of_values ? tile->gradient_columns : tile->query_columns).from(element, 0),
                       .a_panels = 1,
                       .b_panels = 1,
                       .steps = tile->rows / step_terms,
                       .accumulate = true},
                      beside);
    }
  }
  [[nodiscard]] int64_t steps() const { return (end - first) * (tile->rows / step_terms); }

  const BackwardPanels* tile;
  int64_t column, first, end;
};

// From the scores of a block, and the products of output gradients and values, to probabilities and score gradients. A
// unit is 32 rows of two columns.
class GradientPass {
 public:
  GradientPass(const BackwardBlock& block, int64_t which, const RowBounds& bounds)
      : tile_(*block.tile),
        block_(block),
        units_(panel_lines / 2 * block.rows / step_terms),
        scores_(tile_.scores[which]),
        gradients_(tile_.score_gradients[which]),
        probability_rows_(tile_.probability_rows[block.room()].data),
        gradient_rows_(tile_.score_gradient_rows[block.room()].data),
        bounds_(bounds),
        all_see_(bounds.all_see(block.column, panel_lines)),
        scale_(_mm512_set1_ps(tile_.scale * log2_e)) {}

  [[nodiscard]] int64_t units() const { return units_; }  // that are left

  [[gnu::always_inline]] void advance(int64_t units) {
    if (units > units_) units = units_;
    for (units_ -= units; units > 0; --units) take();
  }

 private:
  struct Pair {
    __m512 p, ds;
  };

  [[gnu::always_inline]] Pair pair(int64_t line, int64_t block_row) const {
    const int64_t at = line * block_rows + block_row, row = block_.row + block_row;
    const __m512 shift = _mm512_mul_ps(_mm512_loadu_ps(tile_.log_sum + row), _mm512_set1_ps(log2_e));
    __m512 p = exp2(_mm512_fmsub_ps(_mm512_loadu_ps(scores_ + at), scale_, shift));
    __m512 ds = _mm512_mul_ps(p, _mm512_sub_ps(_mm512_loadu_ps(gradients_ + at), _mm512_loadu_ps(tile_.delta + row)));
    if (!all_see_) {
      const __mmask16 seen = bounds_.at(row, block_.column + line);
      p = _mm512_maskz_mov_ps(seen, p);
      ds = _mm512_maskz_mov_ps(seen, ds);
    }
    return {p, ds};
  }

  static __m512i rounded(__m512 low, __m512 high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }

  [[gnu::always_inline]] void take() {
    const int64_t row = block_.row + row_;
    const int64_t at =
        row / step_terms * 2 * tile_elements + line_ / tile_lines * tile_elements + line_ % tile_lines * step_terms;
    __m512i ds[2];
    for (int64_t i = 0; i < 2; ++i) {
      const Pair low = pair(line_ + i, row_), high = pair(line_ + i, row_ + lanes);
      ds[i] = rounded(low.ds, high.ds);
      _mm512_store_si512(probability_rows_ + at + i * step_terms, rounded(low.p, high.p));
      _mm512_store_si512(gradient_rows_ + at + i * step_terms, ds[i]);
    }
    // Columns are terms here, rows lines: two terms of a line side by side.
    bfloat16* const columns = tile_.score_gradient_columns.from(row, block_.column).data + line_ / 2 * step_terms;
    _mm512_store_si512(columns, _mm512_permutex2var_epi16(ds[0], alternating_, ds[1]));
    _mm512_store_si512(columns + tile_elements,
                       _mm512_permutex2var_epi16(ds[0], _mm512_add_epi16(alternating_, _mm512_set1_epi16(16)), ds[1]));
    row_ += step_terms;
    if (row_ == block_.rows) row_ = 0, line_ += 2;
  }

  const BackwardPanels& tile_;
  const BackwardBlock block_;
  int64_t units_;
  const float *scores_, *gradients_;
  bfloat16 *probability_rows_, *gradient_rows_;
  const RowBounds& bounds_;
  bool all_see_;
  __m512 scale_;
  // 0, 32, 1, 33, ...
  __m512i alternating_ =
      _mm512_add_epi32(_mm512_set1_epi32(32 << 16),
                       _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                          _mm512_set1_epi32(0x10001)));
  int64_t line_ = 0, row_ = 0;  // within the block
};

}  // namespace

void differentiate(const BackwardPanels& tile) {
  const TileRegisters in_use;
  const auto nothing = [] {};
  const RowBounds bounds(tile);
  BackwardBlock now(tile, 0, 0);
  now.multiply_scores(0, nothing);
  for (int64_t which = 0; !now.is_end(); which = 1 - which) {
    const BackwardBlock next = now.next();
    const GradientParts before = GradientParts::beside(now);
    GradientPass pass(now, which, bounds);
    const int64_t share = share_of(pass.units(), next.score_steps() + before.steps());
    const auto beside = [&] { pass.advance(share); };
    next.multiply_scores(1 - which, beside);
    before.multiply(beside);
    pass.advance(pass.units());
    now = next;
  }
  GradientParts::of_last(tile).multiply(nothing);
  multiply_beside({.c = tile.query_gradient,
                   .ldc = tile.rows,
                   .a = tile.key_columns,
                   .b = tile.score_gradient_columns,
                   .a_panels = tile.head_dim / panel_lines,
                   .b_panels = tile.rows / panel_lines,
                   .steps = tile.columns / step_terms,
                   .accumulate = false},
                  nothing);
}

void add(const QueryGradient& gradient) {
  const auto [sum, rows, queries, group, head_dim, scale, to, stride] = gradient;
  for (int64_t row = 0; row < queries * group; row += lanes) {
    for (int64_t element = 0; element < head_dim; element += lanes) {
      Tile tile;
      for (int64_t i = 0; i < lanes; ++i) tile[i] = _mm512_loadu_si512(sum + (element + i) * rows + row);
      transpose(tile);
      for (int64_t i = 0; i < lanes && row + i < queries * group; ++i) {
        float* const place = to + (row + i) / group * stride + (row + i) % group * head_dim + element;
        _mm512_storeu_ps(
            place, _mm512_fmadd_ps(reinterpret_cast<__m512>(tile[i]), _mm512_set1_ps(scale), _mm512_loadu_ps(place)));
      }
    }
  }
}

// While the probabilities of one panel are taken, the scores of the next are multiplied and the probabilities of the
// one before with the values.
void attend(const ForwardPanels& tile) {
  const TileRegisters in_use;
  const auto nothing = [] {};
  ForwardPanel before(tile, tile.rows), now = ForwardPanel(tile, 0).or_next();
  if (now.is_end()) return;
  now.multiply_scores(tile.scores[0], nothing);
  now.update_maxima(tile.scores[0]);
  for (int turn = 0; !now.is_end(); turn = 1 - turn) {
    const ForwardPanel next = ForwardPanel(tile, now.row + panel_lines).or_next();
    ProbabilityPass pass(now, tile.scores[turn], tile.probability[turn]);
    const int64_t share = share_of(pass.units(), next.steps() + before.steps());
    const auto beside = [&] { pass.advance(share); };
    next.multiply_scores(tile.scores[1 - turn], beside);
    before.multiply_output(tile.probability[1 - turn], beside);
    pass.advance(pass.units());
    next.update_maxima(tile.scores[1 - turn]);
    if (next.is_end()) now.multiply_output(tile.probability[turn], nothing);
    before = now, now = next;
  }
}

}  // namespace annulus::cpu::amx
