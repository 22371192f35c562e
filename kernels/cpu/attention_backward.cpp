#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_tiling.h"
#include "kernels/shapes.h"

namespace annulus::cpu {
namespace {

constexpr int64_t stacked_rows = 512;  // of a query tile

// What one thread needs.
struct Scratch {
  Scratch(const QueryTiling& tiling, int64_t product_bytes, ScratchCutter& cutter) {
    const int64_t query_elements = tiling.stacked() * tiling.head_dim;
    const int64_t key_elements = max_tile_width * tiling.head_dim;
    const int64_t element = size_of(tiling.dtype);
    query = cutter.take<char>(query_elements * element);
    output_gradient = cutter.take<char>(query_elements * element);
    key = cutter.take<char>(key_elements * element);
    value = cutter.take<char>(key_elements * element);
    scores = cutter.take<float>(tiling.stacked() * max_tile_width);
    gradients = cutter.take<float>(tiling.stacked() * max_tile_width);
    log_sum = cutter.take<float>(tiling.stacked());
    delta = cutter.take<float>(tiling.stacked());
    result = cutter.take<float>(std::max(query_elements, key_elements));
    ranges = cutter.take<ColumnRanges>(tiling.queries);
    seen = cutter.take<int32_t>(max_tile_width + 1);
    product = cutter.take<char>(product_bytes);
  }

  char* query;            // (stacked, head_dim)
  char* output_gradient;  // (stacked, head_dim)
  char* key;              // (width, head_dim)
  char* value;            // (width, head_dim)
  float* scores;          // (stacked, width)
  float* gradients;       // (stacked, width)
  float* log_sum;         // (stacked)
  float* delta;           // (stacked)
  float* result;          // (stacked or width, head_dim): of one of the last three products
  ColumnRanges* ranges;   // (queries)
  int32_t* seen;          // (max_tile_width + 1)
  char* product;          // of one matrix product
};

// dK = dSᵀ·Q and dV = Pᵀ·dO
Gemm key_product(const QueryTiling& tiling, int64_t width) {
  return {.m = width,
          .n = tiling.head_dim,
          .k = tiling.stacked(),
          .ldc = tiling.head_dim,
          .lda = score_stride(tiling, width),
          .ldb = tiling.head_dim,
          .dtype = tiling.dtype,
          .transpose_a = true};
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

// One tile of queries and one tile of keys with one key head.
struct Pair {
  const AttentionBackward& args;
  const QueryTiling& tiling;
  const Scratch& scratch;
  int64_t kv_head;
  int64_t first_query, queries;
  KeyTile keys;

  // Adds what the pair contributes to dQ, dK and dV. Returns whether any of its keys is seen.
  bool run() const;

 private:
  [[nodiscard]] HeadRows rows_of(const View& view, int64_t first) const {
    return {view, tiling.kv_heads, kv_head, first};
  }
  void pack(const TileMask& mask) const;
  void multiply(Gemm gemm, const void* a, const void* b, float* c) const {
    gemm.a = a, gemm.b = b, gemm.c = c;
    run_gemm(gemm, scratch.product);
  }
};

bool Pair::run() const {
  TileMask mask(scratch.ranges, scratch.seen);
  if (!mask.build(key_ranges(args.ranges, first_query, queries), tiling.queries,
                  args.keys[keys.slice].first + keys.first, keys.keys)) {
    return false;
  }
  pack(mask);
  const int64_t width = mask.width();
  multiply(score_product(tiling, width), scratch.query, scratch.key, scratch.scores);
  multiply(score_product(tiling, width), scratch.output_gradient, scratch.value, scratch.gradients);
  attention_tile_kernels().gradient({.scores = scratch.scores,
                                     .gradients = scratch.gradients,
                                     .log_sum = scratch.log_sum,
                                     .delta = scratch.delta,
                                     .ranges = mask.ranges(),
                                     .rows = tiling.stacked(),
                                     .group = tiling.group,
                                     .width = width,
                                     .scale = args.scale,
                                     .round = tiling.dtype == DType::bfloat16});
  const int64_t key = keys.first + mask.begin();
  multiply(key_product(tiling, width), scratch.scores, scratch.output_gradient, scratch.result);
  rows_of(args.key_gradients[keys.slice].value, key).add(scratch.result, mask.keys());
  multiply(key_product(tiling, width), scratch.gradients, scratch.query, scratch.result);
  rows_of(args.key_gradients[keys.slice].key, key).add(scratch.result, mask.keys());
  multiply(query_product(tiling, width), scratch.gradients, scratch.key, scratch.result);
  rows_of(args.query_gradient, first_query).add(scratch.result, queries);
  return true;
}

// Queries that see none of the keys and keys that none of the queries sees become zeros: 0 times a NaN would be one.
void Pair::pack(const TileMask& mask) const {
  const auto sees = [&](int64_t query) { return mask.sees(query); };
  const auto seen = [&](int64_t column) { return mask.seen(column); };
  rows_of(args.query, first_query).pack(scratch.query, queries, tiling.queries, sees);
  rows_of(args.output_gradient, first_query).pack(scratch.output_gradient, queries, tiling.queries, sees);
  rows_of(args.log_sum, first_query).pack(scratch.log_sum, queries, tiling.queries, sees);
  rows_of(args.delta, first_query).pack(scratch.delta, queries, tiling.queries, sees);
  const int64_t key = keys.first + mask.begin();
  rows_of(args.keys[keys.slice].key, key).pack(scratch.key, mask.keys(), mask.width(), seen);
  rows_of(args.keys[keys.slice].value, key).pack(scratch.value, mask.keys(), mask.width(), seen);
}

// How a call is cut, and what it needs.
struct BackwardPlan {
  QueryTiling tiling;
  int64_t product;     // bytes of scratch for the products
  int64_t hull_bytes;  // for what each tile of queries sees
  int64_t bytes;       // of scratch for each thread

  explicit BackwardPlan(const AttentionBackward& args)
      : tiling(args.query, args.keys, stacked_rows),
        product(product_bytes(tiling)),
        hull_bytes(round_up(tiling.tiles * static_cast<int64_t>(sizeof(KeyRanges)), 64)) {
    ScratchCutter counter(nullptr);
    Scratch(tiling, product, counter);
    bytes = counter.used();
  }
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
  const BackwardPlan plan(args);
  return plan.hull_bytes + threads * plan.bytes;
}

// Tiles of keys go in waves of as many as there are tiles of queries. In step t of a wave its j-th tile of keys works
// on tile (j + t) mod tiles of queries: no two pairs of a step share a tile, so each adds to dQ, dK and dV alone, and
// in an order that is the same for any number of threads. Under a causal mask a step keeps half of its pairs busy on
// average.
void attention_backward(const AttentionBackward& args, Memory& memory, int threads,
                        const std::function<void()>& progress) {
  require_shapes(args);
  for (const KeyGradientSlice& slice : args.key_gradients) {
    fill_zero(slice.key, threads);
    fill_zero(slice.value, threads);
  }
  if (args.first) fill_zero(args.query_gradient, threads);
  if (args.query.empty() || args.keys.empty()) return;
  const OneThreadPerProduct one_thread;
  const BackwardPlan plan(args);
  const QueryTiling& tiling = plan.tiling;
  const Allocation scratch(memory, plan.hull_bytes + threads * plan.bytes, Purpose::workspace);

  auto* hulls = static_cast<KeyRanges*>(scratch.data());  // of each tile of queries
  for (int64_t i = 0; i < tiling.tiles; ++i) {
    hulls[i] = hull(key_ranges(args.ranges, tiling.first_query(i), tiling.queries_of(i)));
  }
  const auto run_pair = [&](const Worker& worker, int64_t kv_head, int64_t query_tile, const KeyTile& keys) {
    if (!meets(hulls[query_tile], args.keys[keys.slice].first + keys.first, keys.keys)) return;
    ScratchCutter cutter(static_cast<char*>(scratch.data()) + plan.hull_bytes + worker.index * plan.bytes);
    const Scratch mine(tiling, plan.product, cutter);
    const Pair pair{.args = args,
                    .tiling = tiling,
                    .scratch = mine,
                    .kv_head = kv_head,
                    .first_query = tiling.first_query(query_tile),
                    .queries = tiling.queries_of(query_tile),
                    .keys = keys};
    if (pair.run()) worker.report();
  };
  const int64_t total = key_tiles(args.keys);
  for (int64_t wave = 0; wave < total; wave += tiling.tiles) {
    const int64_t size = std::min(tiling.tiles, total - wave);
    for (int64_t step = 0; step < tiling.tiles; ++step) {
      for_each_task(threads, tiling.kv_heads * size, progress, [&](const Worker& worker, int64_t task) {
        const int64_t kv_head = task / size, j = task % size;
        run_pair(worker, kv_head, (j + step) % tiling.tiles, key_tile(args.keys, wave + j));
      });
    }
  }
}

}  // namespace annulus::cpu
