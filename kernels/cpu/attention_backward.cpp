#include <memory>
#include <thread>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_panels.h"
#include "kernels/cpu/attention_tiling.h"
#include "kernels/shapes.h"

namespace annulus::cpu {
namespace {

// Of a query tile. By panels: what is packed of a tile fits the second-level cache beside the keys and their gradients.
constexpr int64_t stacked_rows_at_once = 512, stacked_rows_by_panels = 128;

// dK = dSᵀ·Q and dV = Pᵀ·dO
Gemm key_product(const QueryTiling& tiling, int64_t width) {
  return {.m = width,
          .n = tiling.head_dim,
          .k = tiling.stacked(),
          .ldc = tiling.head_dim,
          .lda = score_stride(tiling, width),
          .ldb = tiling.head_dim,
          .dtype = tiling.dtype,
          .transpose_a = true,
          .accumulate = true};
}

// dQ = dS·K
Gemm query_product(const QueryTiling& tiling, int64_t width) {
  return {.m = tiling.stacked(),
          .n = tiling.head_dim,
          .k = width,
          .ldc = tiling.head_dim,
          .lda = score_stride(tiling, width),
          .ldb = tiling.head_dim,
          .dtype = tiling.dtype};
}

int64_t product_bytes(const QueryTiling& tiling) {
  int64_t bytes = 0;
  for (const int64_t width : tile_widths) {
    bytes =
        std::max({bytes, gemm_scratch_bytes(score_product(tiling, width)),
                  gemm_scratch_bytes(key_product(tiling, width)), gemm_scratch_bytes(query_product(tiling, width))});
  }
  return bytes;
}

// How a call is cut.
struct BackwardPlan {
  explicit BackwardPlan(const AttentionBackward& args)
      : panels(goes_by_panels(args.query)),
        tiling(args.query, args.keys, panels ? stacked_rows_by_panels : stacked_rows_at_once),
        product(panels ? 0 : product_bytes(tiling)) {}

  bool panels;
  QueryTiling tiling;
  int64_t product;  // bytes of scratch for the products
};

// What one thread needs.
struct Scratch {
  Scratch(const BackwardPlan& plan, ScratchCutter& cutter) {
    const QueryTiling& tiling = plan.tiling;
    const int64_t rows = tiling.stacked(), head_dim = tiling.head_dim, element = size_of(tiling.dtype);
    query = cutter.take<char>(rows * head_dim * element);
    output_gradient = cutter.take<char>(rows * head_dim * element);
    key = cutter.take<char>(max_tile_width * head_dim * element);
    value = cutter.take<char>(max_tile_width * head_dim * element);
    key_gradient = cutter.take<float>(max_tile_width * head_dim);
    value_gradient = cutter.take<float>(max_tile_width * head_dim);
    const int64_t padded_rows = plan.panels ? whole_panels(rows) : rows;
    if (plan.panels) {
      query_rows = take_panels(cutter, rows, head_dim);
      query_columns = take_panels(cutter, head_dim, rows);
      output_gradient_rows = take_panels(cutter, rows, head_dim);
      output_gradient_columns = take_panels(cutter, head_dim, rows);
      key_rows = take_panels(cutter, max_tile_width, head_dim);
      key_columns = take_panels(cutter, head_dim, max_tile_width);
      value_rows = take_panels(cutter, max_tile_width, head_dim);
      scores = cutter.take<float>(2 * amx::panel_lines * amx::block_rows);
      gradients = cutter.take<float>(2 * amx::panel_lines * amx::block_rows);
      probability_rows = take_panels(cutter, 2 * amx::panel_lines, rows);
      gradient_rows = take_panels(cutter, 2 * amx::panel_lines, rows);
      gradient_columns = take_panels(cutter, rows, max_tile_width);
      query_gradient = cutter.take<float>(padded_rows * head_dim);
      bounds = cutter.take<int32_t>(4 * padded_rows);
    } else {
      scores = cutter.take<float>(rows * max_tile_width);
      gradients = cutter.take<float>(rows * max_tile_width);
      query_gradient = cutter.take<float>(rows * head_dim);
      product = cutter.take<char>(plan.product);
    }
    log_sum = cutter.take<float>(padded_rows);
    delta = cutter.take<float>(padded_rows);
    ranges = cutter.take<ColumnRanges>(padded_queries(tiling));
    seen = cutter.take<int32_t>(max_tile_width + 1);
  }

  char* query;            // (stacked, head_dim)
  char* output_gradient;  // (stacked, head_dim)
  char* key;              // (max_tile_width, head_dim)
  char* value;            // (max_tile_width, head_dim)
  float* key_gradient;    // (max_tile_width, head_dim)
  float* value_gradient;  // (max_tile_width, head_dim)
  float* query_gradient;  // (stacked, head_dim); by panels (head_dim, stacked)
  float* scores;          // (stacked, width); by panels (2, 32, block_rows)
  float* gradients;       // as scores
  float* log_sum;         // (stacked)
  float* delta;           // (stacked)
  ColumnRanges* ranges;   // (queries)
  int32_t* seen;          // (max_tile_width + 1)
  char* product;          // at once: of one matrix product
  // By panels: what is a line, a row or a column.
  amx::Panels query_rows, query_columns, output_gradient_rows, output_gradient_columns;
  amx::Panels key_rows, key_columns, value_rows;
  amx::Panels probability_rows, gradient_rows, gradient_columns;
  int32_t* bounds;
};

// Tiles of keys add to dQ of a tile of queries one after the other, in their order: a sum does not depend on which
// thread is faster.
class Turns {
 public:
  // `last` has room for kv_heads · query_tiles.
  Turns(std::atomic<int64_t>* last, int64_t kv_heads, int64_t query_tiles) : last_(last), query_tiles_(query_tiles) {
    std::uninitialized_fill_n(last, kv_heads * query_tiles, none);
  }

  static constexpr int64_t none = -1;

  // Until `before`, a tile of keys or none, has added. Returns false if it never will, since its thread has failed.
  [[nodiscard]] bool wait(const Worker& worker, int64_t kv_head, int64_t query_tile, int64_t before) const {
    while (of(kv_head, query_tile).load(std::memory_order_acquire) != before) {
      if (*worker.failed) return false;
      worker.report();
      std::this_thread::yield();
    }
    return true;
  }

  void end(int64_t kv_head, int64_t query_tile, int64_t key_tile) const {
    of(kv_head, query_tile).store(key_tile, std::memory_order_release);
  }

 private:
  [[nodiscard]] std::atomic<int64_t>& of(int64_t kv_head, int64_t query_tile) const {
    return last_[kv_head * query_tiles_ + query_tile];
  }

  std::atomic<int64_t>* last_;
  int64_t query_tiles_;
};

// What all threads share.
struct Call {
  const AttentionBackward& args;
  const BackwardPlan& plan;
  std::span<const KeyRanges> hulls;  // of the tiles of queries
  Turns turns;

  [[nodiscard]] bool meet(int64_t query_tile, const KeyTile& keys) const {
    return meets(hulls[query_tile], args.keys[keys.slice].first + keys.first, keys.keys);
  }
};

// One tile of keys with one key head, against all tiles of queries.
class KeyTask {
 public:
  KeyTask(const Call& call, const Scratch& scratch, int64_t kv_head, int64_t index)
      : call_(call),
        args_(call.args),
        tiling_(call.plan.tiling),
        scratch_(scratch),
        kv_head_(kv_head),
        index_(index),
        keys_(key_tile(args_.keys, index)),
        first_row_(args_.keys[keys_.slice].first + keys_.first) {}

  void run(const Worker& worker) const;

 private:
  // Some of the tile's keys: what one tile of queries works on.
  using Columns = TileMask::Columns;

  [[nodiscard]] HeadRows queries(const View& view, int64_t first) const {
    return {view, tiling_.kv_heads, kv_head_, first};
  }
  [[nodiscard]] HeadRows keys(const View& view) const { return {view, tiling_.kv_heads, kv_head_, keys_.first}; }
  [[nodiscard]] std::span<const KeyRanges> ranges(int64_t query_tile) const {
    return key_ranges(args_.ranges, tiling_.first_query(query_tile), tiling_.queries_of(query_tile));
  }

  void pack_keys() const;
  [[nodiscard]] bool add_query_tile(const Worker& worker, int64_t query_tile) const;
  void pack_queries(const TileMask& mask, int64_t first, int64_t count) const;
  void add_query_gradient(int64_t first, int64_t count) const;
  void multiply_at_once(const TileMask& mask, Columns columns) const;
  void multiply_by_panels(const TileMask& mask, Columns columns) const;
  void gradient(const TileMask& mask, Columns columns) const;
  [[nodiscard]] int64_t met_before(int64_t query_tile) const;

  const Call& call_;
  const AttentionBackward& args_;
  const QueryTiling& tiling_;
  const Scratch& scratch_;
  int64_t kv_head_;
  int64_t index_;  // of the tile of keys
  KeyTile keys_;
  int64_t first_row_;  // of the keys, global
};

void KeyTask::run(const Worker& worker) const {
  pack_keys();
  std::fill_n(scratch_.key_gradient, keys_.keys * tiling_.head_dim, 0.0F);
  std::fill_n(scratch_.value_gradient, keys_.keys * tiling_.head_dim, 0.0F);
  for (int64_t tile = 0; tile < tiling_.tiles; ++tile) {
    if (!call_.meet(tile, keys_)) continue;
    if (!add_query_tile(worker, tile)) return;
    worker.report();
  }
  if (call_.plan.panels) {
    const int64_t elements = keys_.keys * tiling_.head_dim;
    for (int64_t i = 0; i < elements; ++i) scratch_.key_gradient[i] *= args_.scale;
  }
  const KeyGradientSlice& gradients = args_.key_gradients[keys_.slice];
  keys(gradients.key).unpack(scratch_.key_gradient, keys_.keys);
  keys(gradients.value).unpack(scratch_.value_gradient, keys_.keys);
}

// Keys that no query sees become zeros: 0 times a NaN would be one.
void KeyTask::pack_keys() const {
  SeenKeys seen(scratch_.seen, first_row_, keys_.keys);
  for (int64_t tile = 0; tile < tiling_.tiles; ++tile) {
    if (call_.meet(tile, keys_)) seen.add(ranges(tile));
  }
  seen.finish();
  const KeySlice& slice = args_.keys[keys_.slice];
  keys(slice.key).pack(scratch_.key, keys_.keys, max_tile_width, seen);
  keys(slice.value).pack(scratch_.value, keys_.keys, max_tile_width, seen);
  if (!call_.plan.panels) return;
  const int64_t width = whole_panels(keys_.keys), head_dim = tiling_.head_dim;
  amx::pack_a(scratch_.key_rows, row_lines(scratch_.key, head_dim, width, head_dim));
  amx::pack_a(scratch_.key_columns, column_lines(scratch_.key, head_dim, width, head_dim));
  amx::pack_a(scratch_.value_rows, row_lines(scratch_.value, head_dim, width, head_dim));
}

// The last tile of keys before this one that adds to dQ of a tile of queries.
int64_t KeyTask::met_before(int64_t query_tile) const {
  int64_t before = index_ - 1;
  while (before >= 0 && !call_.meet(query_tile, key_tile(args_.keys, before))) --before;
  return before >= 0 ? before : Turns::none;
}

bool KeyTask::add_query_tile(const Worker& worker, int64_t query_tile) const {
  const int64_t first = tiling_.first_query(query_tile), count = tiling_.queries_of(query_tile);
  const TileMask mask(scratch_.ranges, ranges(query_tile), padded_queries(tiling_), first_row_, keys_.keys);
  const Columns columns = mask.columns(0, tiling_.queries);
  if (!columns.empty()) {
    pack_queries(mask, first, count);
    call_.plan.panels ? multiply_by_panels(mask, columns.whole(amx::panel_lines)) : multiply_at_once(mask, columns);
  }
  if (!call_.turns.wait(worker, kv_head_, query_tile, met_before(query_tile))) return false;
  if (!columns.empty()) add_query_gradient(first, count);
  call_.turns.end(kv_head_, query_tile, index_);
  return true;
}

// Queries that see none of the keys become zeros, for the same reason.
void KeyTask::pack_queries(const TileMask& mask, int64_t first, int64_t count) const {
  const auto sees = [&](int64_t query) { return mask.sees(query); };
  queries(args_.query, first).pack(scratch_.query, count, tiling_.queries, sees);
  queries(args_.output_gradient, first).pack(scratch_.output_gradient, count, tiling_.queries, sees);
  queries(args_.log_sum, first).pack(scratch_.log_sum, count, tiling_.queries, sees);
  queries(args_.delta, first).pack(scratch_.delta, count, tiling_.queries, sees);
  if (!call_.plan.panels) return;
  const int64_t rows = tiling_.stacked(), head_dim = tiling_.head_dim;
  amx::pack_b(scratch_.query_rows, row_lines(scratch_.query, head_dim, rows, head_dim));
  amx::pack_b(scratch_.query_columns, column_lines(scratch_.query, head_dim, rows, head_dim));
  amx::pack_b(scratch_.output_gradient_rows, row_lines(scratch_.output_gradient, head_dim, rows, head_dim));
  amx::pack_b(scratch_.output_gradient_columns, column_lines(scratch_.output_gradient, head_dim, rows, head_dim));
}

void KeyTask::gradient(const TileMask& mask, Columns columns) const {
  attention_tile_kernels().gradient({.scores = scratch_.scores,
                                     .gradients = scratch_.gradients,
                                     .log_sum = scratch_.log_sum,
                                     .delta = scratch_.delta,
                                     .ranges = mask.ranges(),
                                     .first_row = 0,
                                     .first_column = columns.begin,
                                     .rows = tiling_.stacked(),
                                     .width = columns.count(),
                                     .group = tiling_.group,
                                     .scale = args_.scale,
                                     .round = tiling_.dtype == DType::bfloat16});
}

void KeyTask::multiply_at_once(const TileMask& mask, Columns columns) const {
  const int64_t width = tile_width(columns.count());
  columns.begin = std::min(columns.begin, max_tile_width - width);
  columns.end = columns.begin + width;
  const auto multiply = [&](Gemm gemm, const void* a, const void* b, float* c) {
    gemm.a = a, gemm.b = b, gemm.c = c;
    run_gemm(gemm, scratch_.product);
  };
  const int64_t first = columns.begin * tiling_.head_dim, first_byte = first * size_of(tiling_.dtype);
  const char *const key = scratch_.key + first_byte, *const value = scratch_.value + first_byte;
  multiply(score_product(tiling_, width), scratch_.query, key, scratch_.scores);
  multiply(score_product(tiling_, width), scratch_.output_gradient, value, scratch_.gradients);
  gradient(mask, columns);
  multiply(key_product(tiling_, width), scratch_.scores, scratch_.output_gradient, scratch_.value_gradient + first);
  multiply(key_product(tiling_, width), scratch_.gradients, scratch_.query, scratch_.key_gradient + first);
  multiply(query_product(tiling_, width), scratch_.gradients, key, scratch_.query_gradient);
}

void KeyTask::multiply_by_panels(const TileMask& mask, Columns columns) const {
  const int64_t rows = whole_panels(tiling_.stacked()), head_dim = tiling_.head_dim;
  const int64_t scores = amx::panel_lines * amx::block_rows;
  amx::differentiate(
      {.key_rows = scratch_.key_rows.from(columns.begin, 0),
       .value_rows = scratch_.value_rows.from(columns.begin, 0),
       .key_columns = scratch_.key_columns.from(0, columns.begin),
       .query_rows = scratch_.query_rows,
       .gradient_rows = scratch_.output_gradient_rows,
       .query_columns = scratch_.query_columns,
       .gradient_columns = scratch_.output_gradient_columns,
       .ranges = mask.ranges(),
       .log_sum = scratch_.log_sum,
       .delta = scratch_.delta,
       .rows = rows,
       .columns = columns.count(),
       .group = tiling_.group,
       .head_dim = head_dim,
       .first_column = columns.begin,
       .scale = args_.scale,
       .key_gradient = scratch_.key_gradient + columns.begin * head_dim,
       .value_gradient = scratch_.value_gradient + columns.begin * head_dim,
       .query_gradient = scratch_.query_gradient,
       .scores = {scratch_.scores, scratch_.scores + scores},
       .score_gradients = {scratch_.gradients, scratch_.gradients + scores},
       .probability_rows = {scratch_.probability_rows, scratch_.probability_rows.from(amx::panel_lines, 0)},
       .score_gradient_rows = {scratch_.gradient_rows, scratch_.gradient_rows.from(amx::panel_lines, 0)},
       .score_gradient_columns = scratch_.gradient_columns,
       .bounds = scratch_.bounds});
}

void KeyTask::add_query_gradient(int64_t first, int64_t count) const {
  const HeadRows rows = queries(args_.query_gradient, first);
  if (!call_.plan.panels) return rows.add(scratch_.query_gradient, count);
  const int64_t row_elements = tiling_.group * tiling_.head_dim;
  amx::add({.sum = scratch_.query_gradient,
            .rows = whole_panels(tiling_.stacked()),
            .queries = count,
            .group = tiling_.group,
            .head_dim = tiling_.head_dim,
            .scale = args_.scale,
            .to = reinterpret_cast<float*>(rows.row(0)),
            .stride = row_elements * tiling_.kv_heads});
}

// Where scratch lies: what all threads share, and from `threads` on what each has of its own.
struct Layout {
  explicit Layout(const BackwardPlan& plan) {
    const int64_t tiles = plan.tiling.tiles;
    ScratchCutter shared(nullptr), own(nullptr);
    shared.take<KeyRanges>(tiles);
    shared.take<std::atomic<int64_t>>(plan.tiling.kv_heads * tiles);
    Scratch(plan, own);
    shared_bytes = shared.used(), bytes = own.used();
  }
  int64_t shared_bytes, bytes;
};

void fill_zero(const View& view, int threads) {
  auto* data = view.as<float>();
  parallel_blocks(threads, view.elements(), elements_per_block,
                  [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, 0.0F); });
}

}  // namespace

int64_t attention_backward_workspace(const AttentionBackward& args, int threads) {
  if (args.query.empty() || args.keys.empty()) return 0;
  const OneThreadPerProduct one_thread;
  const Layout layout{BackwardPlan(args)};
  return layout.shared_bytes + threads * layout.bytes;
}

void attention_backward(const AttentionBackward& args, Memory& memory, int threads,
                        const std::function<void()>& progress) {
  require_shapes(args);
  if (args.first) fill_zero(args.query_gradient, threads);
  if (args.query.empty() || args.keys.empty()) {
    for (const KeyGradientSlice& slice : args.key_gradients) {
      fill_zero(slice.key, threads);
      fill_zero(slice.value, threads);
    }
    return;
  }
  const OneThreadPerProduct one_thread;
  const BackwardPlan plan(args);
  const Layout layout(plan);
  const QueryTiling& tiling = plan.tiling;
  const Allocation scratch(memory, layout.shared_bytes + threads * layout.bytes, Purpose::workspace);

  ScratchCutter shared(scratch.data());
  auto* const hulls = shared.take<KeyRanges>(tiling.tiles);
  for (int64_t i = 0; i < tiling.tiles; ++i) {
    hulls[i] = hull(key_ranges(args.ranges, tiling.first_query(i), tiling.queries_of(i)));
  }
  auto* const last = shared.take<std::atomic<int64_t>>(tiling.kv_heads * tiling.tiles);
  const Call call{.args = args,
                  .plan = plan,
                  .hulls = {hulls, static_cast<size_t>(tiling.tiles)},
                  .turns = Turns(last, tiling.kv_heads, tiling.tiles)};
  // Tiles of keys in their order, so that one only ever waits for those that somebody works on; the key heads of each
  // side by side, so that it seldom does. Under a causal mask long tasks come first.
  for_each_task(threads, tiling.kv_heads * key_tiles(args.keys), progress, [&](const Worker& worker, int64_t task) {
    ScratchCutter cutter(static_cast<char*>(scratch.data()) + layout.shared_bytes + worker.index * layout.bytes);
    const Scratch mine(plan, cutter);
    KeyTask(call, mine, task % tiling.kv_heads, task / tiling.kv_heads).run(worker);
  });
}

}  // namespace annulus::cpu
