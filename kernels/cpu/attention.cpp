#include "kernels/cpu/attention.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/attention_panels.h"
#include "kernels/cpu/attention_tiling.h"
#include "kernels/shapes.h"

namespace annulus::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Of a query tile. At once: its scores against 512 keys still fit the second-level cache. By panels: the keys are
// packed for many.
constexpr int64_t stacked_rows_at_once = 256, stacked_rows_by_panels = 1024;

constexpr int64_t score_elements = amx::panel_lines * (max_tile_width + amx::score_padding);  // of a panel

// Without keys there are no products, and the smaller tile needs less than that of any call with keys: what a mask
// leaves of the keys changes no peak.
constexpr int64_t stacked_rows_without_keys = 64;

int64_t stacked_rows(const AttentionForward& args) {
  if (args.keys.empty()) return stacked_rows_without_keys;
  return goes_by_panels(args.query) ? stacked_rows_by_panels : stacked_rows_at_once;
}

// O += P·V
Gemm output_product(const QueryTiling& tiling, int64_t width) {
  return {.m = tiling.stacked(),
          .n = tiling.head_dim,
          .k = width,
          .ldc = tiling.head_dim,
          .lda = score_stride(tiling, width),
          .ldb = tiling.head_dim,
          .dtype = tiling.dtype,
          .accumulate = true};
}

int64_t product_bytes(const QueryTiling& tiling) {
  int64_t bytes = 0;
  for (const int64_t width : tile_widths) {
    bytes = std::max(
        {bytes, gemm_scratch_bytes(score_product(tiling, width)), gemm_scratch_bytes(output_product(tiling, width))});
  }
  return bytes;
}

// How a call is cut.
struct ForwardPlan {
  explicit ForwardPlan(const AttentionForward& args)
      : tiling(args.query, args.keys, stacked_rows(args)),
        panels(goes_by_panels(args.query)),
        product(panels || args.keys.empty() ? 0 : product_bytes(tiling)) {}

  QueryTiling tiling;
  bool panels;
  int64_t product;  // bytes of scratch for the products
};

// What one thread needs.
struct Scratch {
  Scratch(const ForwardPlan& plan, ScratchCutter& cutter) {
    const QueryTiling& tiling = plan.tiling;
    const int64_t rows = tiling.stacked(), head_dim = tiling.head_dim, element = size_of(tiling.dtype);
    query = cutter.take<char>(rows * head_dim * element);
    key = cutter.take<char>(max_tile_width * head_dim * element);
    value = cutter.take<char>(max_tile_width * head_dim * element);
    if (plan.panels) {
      scores = cutter.take<float>(2 * score_elements);
      output = cutter.take<float>(whole_panels(rows) * head_dim);
      packed_query = take_panels(cutter, rows, head_dim);
      packed_key = take_panels(cutter, max_tile_width, head_dim);
      packed_value = take_panels(cutter, head_dim, max_tile_width);
      packed_scores = take_panels(cutter, 2 * amx::panel_lines, max_tile_width);
    } else {
      scores = cutter.take<float>(rows * max_tile_width);
      output = cutter.take<float>(rows * head_dim);
      product = cutter.take<char>(plan.product);
    }
    row_max = cutter.take<float>(whole_panels(rows));
    row_sum = cutter.take<float>(whole_panels(rows));
    ranges = cutter.take<ColumnRanges>(padded_queries(tiling));
    seen = cutter.take<int32_t>(max_tile_width + 1);
  }

  char* query;                                                        // (stacked, head_dim)
  char* key;                                                          // (width, head_dim)
  char* value;                                                        // (width, head_dim)
  float* scores;                                                      // (stacked, width); by panels (2, score_elements)
  float* output;                                                      // (stacked, head_dim)
  float* row_max;                                                     // (stacked)
  float* row_sum;                                                     // (stacked)
  ColumnRanges* ranges;                                               // (queries)
  int32_t* seen;                                                      // (max_tile_width + 1)
  char* product;                                                      // at once: of one matrix product
  amx::Panels packed_query, packed_key, packed_value, packed_scores;  // by panels
};

// One tile of queries with one key head.
class ForwardTile {
 public:
  ForwardTile(const AttentionForward& args, const ForwardPlan& plan, const Scratch& scratch, int64_t kv_head,
              int64_t tile)
      : args_(args),
        plan_(plan),
        tiling_(plan.tiling),
        scratch_(scratch),
        kv_head_(kv_head),
        first_(tiling_.first_query(tile)),
        count_(tiling_.queries_of(tile)),
        queries_(key_ranges(args.ranges, first_, count_)) {}

  void run(const Worker& worker) const {
    begin();
    const KeyRanges reach = hull(queries_);
    const int64_t tiles = key_tiles(args_.keys);
    for (int64_t i = 0; i < tiles; ++i) {
      const KeyTile tile = key_tile(args_.keys, i);
      if (!meets(reach, args_.keys[tile.slice].first + tile.first, tile.keys)) continue;
      if (attend(tile)) worker.report();
    }
    args_.last ? finish() : keep();
  }

 private:
  [[nodiscard]] HeadRows part(const View& view) const { return {view, tiling_.kv_heads, kv_head_, first_}; }

  void begin() const {
    part(args_.query).pack(scratch_.query, count_, tiling_.queries);
    if (plan_.panels) {
      amx::pack_a(scratch_.packed_query,
                  row_lines(scratch_.query, tiling_.head_dim, tiling_.stacked(), tiling_.head_dim));
    }
    if (args_.first) {
      std::fill_n(scratch_.output, tiling_.stacked() * tiling_.head_dim, 0.0F);
      std::fill_n(scratch_.row_max, tiling_.stacked(), -infinity);
      std::fill_n(scratch_.row_sum, tiling_.stacked(), 0.0F);
    } else {
      part(args_.state.output).pack(scratch_.output, count_, tiling_.queries);
      part(args_.state.row_max).pack(scratch_.row_max, count_, tiling_.queries);
      part(args_.state.row_sum).pack(scratch_.row_sum, count_, tiling_.queries);
    }
  }

  // Returns whether any of the keys is seen.
  bool attend(const KeyTile& tile) const;
  void attend_at_once(const TileMask& mask, TileMask::Columns packed) const;
  void attend_by_panels(const TileMask& mask, TileMask::Columns packed) const;
  void softmax(const TileMask& mask, TileMask::Columns columns) const;
  void finish() const;

  void keep() const {
    part(args_.state.output).unpack(scratch_.output, count_);
    part(args_.state.row_max).unpack(scratch_.row_max, count_);
    part(args_.state.row_sum).unpack(scratch_.row_sum, count_);
  }

  const AttentionForward& args_;
  const ForwardPlan& plan_;
  const QueryTiling& tiling_;
  const Scratch& scratch_;
  int64_t kv_head_;
  int64_t first_, count_;  // queries
  std::span<const KeyRanges> queries_;
};

bool ForwardTile::attend(const KeyTile& tile) const {
  const KeySlice& slice = args_.keys[tile.slice];
  const TileMask mask(scratch_.ranges, queries_, padded_queries(tiling_), slice.first + tile.first, tile.keys);
  const TileMask::Columns columns = mask.columns(0, tiling_.queries);
  if (columns.empty()) return false;

  const TileMask::Columns packed = plan_.panels
                                       ? columns.whole(amx::panel_lines)
                                       : TileMask::Columns{columns.begin, columns.begin + tile_width(columns.count())};
  SeenKeys seen(scratch_.seen, slice.first + tile.first, tile.keys);
  seen.add(queries_);
  seen.finish();
  const auto keep = [&](int64_t column) { return seen(packed.begin + column); };
  const auto pack = [&](const View& view, char* into) {
    HeadRows(view, tiling_.kv_heads, kv_head_, tile.first + packed.begin)
        .pack(into, columns.end - packed.begin, packed.count(), keep);
  };
  pack(slice.key, scratch_.key);
  pack(slice.value, scratch_.value);
  plan_.panels ? attend_by_panels(mask, packed) : attend_at_once(mask, packed);
  return true;
}

void ForwardTile::softmax(const TileMask& mask, TileMask::Columns columns) const {
  attention_tile_kernels().softmax({.scores = scratch_.scores,
                                    .output = scratch_.output,
                                    .row_max = scratch_.row_max,
                                    .row_sum = scratch_.row_sum,
                                    .ranges = mask.ranges(),
                                    .first_row = 0,
                                    .first_column = columns.begin,
                                    .rows = tiling_.stacked(),
                                    .width = columns.count(),
                                    .group = tiling_.group,
                                    .head_dim = tiling_.head_dim,
                                    .scale = args_.scale,
                                    .round = tiling_.dtype == DType::bfloat16});
}

void ForwardTile::attend_at_once(const TileMask& mask, TileMask::Columns packed) const {
  Gemm scores = score_product(tiling_, packed.count());
  scores.a = scratch_.query, scores.b = scratch_.key, scores.c = scratch_.scores;
  run_gemm(scores, scratch_.product);
  softmax(mask, packed);
  Gemm output = output_product(tiling_, packed.count());
  output.a = scratch_.scores, output.b = scratch_.value, output.c = scratch_.output;
  run_gemm(output, scratch_.product);
}

void ForwardTile::attend_by_panels(const TileMask& mask, TileMask::Columns packed) const {
  const int64_t head_dim = tiling_.head_dim;
  amx::pack_b(scratch_.packed_key, row_lines(scratch_.key, head_dim, packed.count(), head_dim));
  amx::pack_b(scratch_.packed_value, column_lines(scratch_.value, head_dim, packed.count(), head_dim));
  amx::attend({.query = scratch_.packed_query,
               .key = scratch_.packed_key,
               .value = scratch_.packed_value,
               .ranges = mask.ranges(),
               .rows = whole_panels(tiling_.stacked()),
               .columns = packed.count(),
               .group = tiling_.group,
               .head_dim = head_dim,
               .first_column = packed.begin,
               .scale = args_.scale,
               .output = scratch_.output,
               .row_max = scratch_.row_max,
               .row_sum = scratch_.row_sum,
               .scores = {scratch_.scores, scratch_.scores + score_elements},
               .probability = {scratch_.packed_scores, scratch_.packed_scores.from(amx::panel_lines, 0)}});
}

// Normalises. A row that has seen nothing has sum 0, output 0 and log_sum −inf + ln 0 = −inf.
void ForwardTile::finish() const {
  const HeadRows output = part(args_.output), log_sum = part(args_.log_sum);
  const AttentionTileKernels& kernels = attention_tile_kernels();
  for (int64_t row = 0; row < count_ * tiling_.group; ++row) {
    const int64_t query = row / tiling_.group, head = row % tiling_.group;
    const float total = scratch_.row_sum[row];
    const float divisor = total == 0 ? 1.0F : total;
    const float* source = scratch_.output + row * tiling_.head_dim;
    char* destination = output.row(query) + head * tiling_.head_dim * size_of(tiling_.dtype);
    if (tiling_.dtype == DType::float32) {
      kernels.divide_float32(reinterpret_cast<float*>(destination), source, divisor, tiling_.head_dim);
    } else {
      kernels.divide_bfloat16(reinterpret_cast<bfloat16*>(destination), source, divisor, tiling_.head_dim);
    }
    reinterpret_cast<float*>(log_sum.row(query))[head] = scratch_.row_max[row] + std::log(total);
  }
}

// Of each thread.
int64_t scratch_bytes(const ForwardPlan& plan) {
  ScratchCutter counter(nullptr);
  Scratch(plan, counter);
  return counter.used();
}

}  // namespace

int64_t attention_forward_workspace(const AttentionForward& args, int threads) {
  const OneThreadPerProduct one_thread;
  return args.query.empty() ? 0 : threads * scratch_bytes(ForwardPlan(args));
}

void attention_forward(const AttentionForward& args, Memory& memory, int threads,
                       const std::function<void()>& progress) {
  require_shapes(args);
  if (args.query.empty()) return;
  const OneThreadPerProduct one_thread;
  const ForwardPlan plan(args);
  const QueryTiling& tiling = plan.tiling;
  const int64_t bytes = scratch_bytes(plan);
  const Allocation scratch(memory, threads * bytes, Purpose::workspace);

  for_each_task(threads, tiling.kv_heads * tiling.tiles, progress, [&](const Worker& worker, int64_t task) {
    ScratchCutter cutter(static_cast<char*>(scratch.data()) + worker.index * bytes);
    const Scratch mine(plan, cutter);
    // From the last tile to the first: under a causal mask long tasks come first, so that threads end together.
    const int64_t kv_head = task / tiling.tiles, tile = tiling.tiles - 1 - task % tiling.tiles;
    ForwardTile(args, plan, mine, kv_head, tile).run(worker);
  });
}

void attention_delta(View delta, View output, View output_gradient, int threads) {
  const int64_t head_dim = output.dim(2), rows = output.dim(0) * output.dim(1);
  const AttentionTileKernels& kernels = attention_tile_kernels();
  auto* result = delta.as<float>();
  const auto dot_rows = [&](const auto* a, const auto* b, const auto& dot) {
    parallel_blocks(threads, rows, std::max<int64_t>(1, elements_per_block / head_dim),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i)
                        result[i] = dot(a + i * head_dim, b + i * head_dim, head_dim);
                    });
  };
  if (output.dtype() == DType::float32) {
    dot_rows(output.as<float>(), output_gradient.as<float>(), kernels.dot_float32);
  } else {
    dot_rows(output.as<bfloat16>(), output_gradient.as<bfloat16>(), kernels.dot_bfloat16);
  }
}

}  // namespace annulus::cpu
