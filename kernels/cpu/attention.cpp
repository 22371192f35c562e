#include "kernels/cpu/attention.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/attention_tiling.h"
#include "kernels/shapes.h"

namespace annulus::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int64_t stacked_rows = 256;  // of a query tile: its scores against 512 keys still fit the second-level cache

// What one thread needs.
struct Scratch {
  Scratch(const QueryTiling& tiling, int64_t product_bytes, ScratchCutter& cutter) {
    const int64_t tile_elements = tiling.stacked() * tiling.head_dim;
    const int64_t element = size_of(tiling.dtype);
    query = cutter.take<char>(tile_elements * element);
    key = cutter.take<char>(max_tile_width * tiling.head_dim * element);
    value = cutter.take<char>(max_tile_width * tiling.head_dim * element);
    scores = cutter.take<float>(tiling.stacked() * max_tile_width);
    output = cutter.take<float>(tile_elements);
    row_max = cutter.take<float>(tiling.stacked());
    row_sum = cutter.take<float>(tiling.stacked());
    ranges = cutter.take<ColumnRanges>(tiling.queries);
    seen = cutter.take<int32_t>(max_tile_width + 1);
    product = cutter.take<char>(product_bytes);
  }

  char* query;           // (stacked, head_dim)
  char* key;             // (width, head_dim)
  char* value;           // (width, head_dim)
  float* scores;         // (stacked, width)
  float* output;         // (stacked, head_dim)
  float* row_max;        // (stacked)
  float* row_sum;        // (stacked)
  ColumnRanges* ranges;  // (queries)
  int32_t* seen;         // (max_tile_width + 1)
  char* product;         // of one matrix product
};

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

// Without keys there are no products, and the smaller tile needs less than that of any call with keys: what a mask
// leaves of the keys changes no peak.
constexpr int64_t stacked_rows_without_keys = 64;

int64_t product_bytes(const QueryTiling& tiling) {
  int64_t bytes = 0;
  for (const int64_t width : tile_widths) {
    bytes = std::max(
        {bytes, gemm_scratch_bytes(score_product(tiling, width)), gemm_scratch_bytes(output_product(tiling, width))});
  }
  return bytes;
}

// One tile of queries with one key head.
class ForwardTile {
 public:
  ForwardTile(const AttentionForward& args, const QueryTiling& tiling, const Scratch& scratch, int64_t kv_head,
              int64_t tile)
      : args_(args),
        tiling_(tiling),
        scratch_(scratch),
        kv_head_(kv_head),
        first_(tiling.first_query(tile)),
        count_(tiling.queries_of(tile)),
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
  void finish() const;

  void keep() const {
    part(args_.state.output).unpack(scratch_.output, count_);
    part(args_.state.row_max).unpack(scratch_.row_max, count_);
    part(args_.state.row_sum).unpack(scratch_.row_sum, count_);
  }

  const AttentionForward& args_;
  const QueryTiling& tiling_;
  const Scratch& scratch_;
  int64_t kv_head_;
  int64_t first_, count_;  // queries
  std::span<const KeyRanges> queries_;
};

bool ForwardTile::attend(const KeyTile& tile) const {
  const KeySlice& slice = args_.keys[tile.slice];
  TileMask mask(scratch_.ranges, scratch_.seen);
  if (!mask.build(queries_, tiling_.queries, slice.first + tile.first, tile.keys)) return false;
  const int64_t width = mask.width();
  const auto seen = [&](int64_t column) { return mask.seen(column); };
  const int64_t first_key = tile.first + mask.begin();
  HeadRows(slice.key, tiling_.kv_heads, kv_head_, first_key).pack(scratch_.key, mask.keys(), width, seen);
  HeadRows(slice.value, tiling_.kv_heads, kv_head_, first_key).pack(scratch_.value, mask.keys(), width, seen);

  Gemm scores = score_product(tiling_, width);
  scores.a = scratch_.query, scores.b = scratch_.key, scores.c = scratch_.scores;
  run_gemm(scores, scratch_.product);

  attention_tile_kernels().softmax({.scores = scratch_.scores,
                                    .output = scratch_.output,
                                    .row_max = scratch_.row_max,
                                    .row_sum = scratch_.row_sum,
                                    .ranges = mask.ranges(),
                                    .rows = tiling_.stacked(),
                                    .group = tiling_.group,
                                    .width = width,
                                    .head_dim = tiling_.head_dim,
                                    .scale = args_.scale,
                                    .round = tiling_.dtype == DType::bfloat16});

  Gemm output = output_product(tiling_, width);
  output.a = scratch_.scores, output.b = scratch_.value, output.c = scratch_.output;
  run_gemm(output, scratch_.product);
  return true;
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

}  // namespace

namespace {

// How a call is cut, and what each of its threads needs.
struct ForwardPlan {
  QueryTiling tiling;
  int64_t product;  // bytes of scratch for the products
  int64_t bytes;    // of scratch for all

  explicit ForwardPlan(const AttentionForward& args)
      : tiling(args.query, args.keys, args.keys.empty() ? stacked_rows_without_keys : stacked_rows),
        product(args.keys.empty() ? 0 : product_bytes(tiling)) {
    ScratchCutter counter(nullptr);
    Scratch(tiling, product, counter);
    bytes = counter.used();
  }
};

}  // namespace

int64_t attention_forward_workspace(const AttentionForward& args, int threads) {
  const OneThreadPerProduct one_thread;
  return args.query.empty() ? 0 : threads * ForwardPlan(args).bytes;
}

void attention_forward(const AttentionForward& args, Memory& memory, int threads,
                       const std::function<void()>& progress) {
  require_shapes(args);
  if (args.query.empty()) return;
  const OneThreadPerProduct one_thread;
  const auto [tiling, product, bytes] = ForwardPlan(args);
  const Allocation scratch(memory, threads * bytes, Purpose::workspace);

  const int64_t tasks = tiling.kv_heads * tiling.tiles;
  for_each_task(threads, tasks, progress,
                [&, &tiling = tiling, product = product, bytes = bytes](const Worker& worker, int64_t task) {
                  ScratchCutter cutter(static_cast<char*>(scratch.data()) + worker.index * bytes);
                  const Scratch mine(tiling, product, cutter);
                  // From the last tile to the first: under a causal mask long tasks come first, so that threads end
                  // together.
                  const int64_t kv_head = task / tiling.tiles, tile = tiling.tiles - 1 - task % tiling.tiles;
                  ForwardTile(args, tiling, mine, kv_head, tile).run(worker);
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
