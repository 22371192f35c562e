// Attention forward (kernels/attention.h) in the manner of FlashAttention-2 (Dao, arXiv 2307.08691, algorithm 1): a
// block owns a tile of queries of one head, the keys and values of the next tile arrive while it works on this one, and
// nothing but the result leaves the block.
#include <cmath>

#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/device.h"

namespace annulus::cuda {
namespace {

// Shared memory stays below 99 KiB, what every GPU from sm_80 on gives a block.
template <class T, int dims_>
struct Tiling {
  static constexpr bool tensor_cores = sizeof(T) == 2;
  static constexpr int dims = dims_;
  static constexpr int warps = (tensor_cores ? 8 : 4) / (dims == 256 ? 2 : 1);
  static constexpr int rows = 16 * warps;                                           // queries of a block
  static constexpr int columns = (tensor_cores ? 64 : 16) / (dims == 256 ? 2 : 1);  // keys of a tile
  static constexpr int threads = warps * warp_size;
  static constexpr int64_t shared_bytes =
      (rows + 4 * columns) * dims * static_cast<int64_t>(sizeof(T)) + rows * static_cast<int64_t>(sizeof(KeyRanges));
};

template <class T>
struct Args {
  const T* query;           // (rows, heads, head_dim)
  const KeyRanges* ranges;  // (rows)
  Slices<T> slices;
  float scale;
  bool first, last;
  float* state_output;
  float* row_max;
  float* row_sum;
  T* output;
  float* log_sum;
  int64_t rows, tiles;
  int heads, kv_heads, head_dim;
};

// What a lane holds of the rows g and g + 8 of its warp; of row_sum its own columns' part.
template <class Tiling>
struct RowState {
  float output[Tiling::dims / 8][4];
  float row_max[2];
  float row_sum[2];
};

// The rows of a lane in global memory.
struct LaneRows {
  int64_t row[2];  // query rows
  bool there[2];   // whether they exist
  int64_t heads, head;

  __device__ int64_t scalar(int h) const { return row[h] * heads + head; }  // in (rows, heads)
};

template <class Tiling, class T>
__device__ void begin_rows(RowState<Tiling>& state, const Args<T>& args, const LaneRows& at) {
  const int t = lane() % 4;
  for (int h = 0; h < 2; ++h) {
    const bool resume = !args.first && at.there[h];
    state.row_max[h] = resume ? args.row_max[at.scalar(h)] : -INFINITY;
    state.row_sum[h] = resume && t == 0 ? args.row_sum[at.scalar(h)] : 0.0F;
#pragma unroll
    for (int n = 0; n < Tiling::dims / 8; ++n) {
      float pair[2] = {};
      if (resume && 8 * n < args.head_dim) load(pair, args.state_output + at.scalar(h) * args.head_dim + 8 * n + 2 * t);
      for (int e = 0; e < 2; ++e) state.output[n][2 * h + e] = pair[e];
    }
  }
}

// One step of the running softmax: scores become probabilities, the state is brought to the new maximum.
template <class T, class Tiling>
__device__ void add_to_softmax(float (&scores)[Tiling::columns / 8][4], RowState<Tiling>& state, float scale) {
  const Exponential<T> exponential{scale};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < Tiling::columns / 8; ++j) most = fmaxf(most, fmaxf(scores[j][2 * h], scores[j][2 * h + 1]));
    for (int mask = 1; mask < 4; mask *= 2) most = fmaxf(most, shfl_sync_bfly(most, mask));
    const float row_max = fmaxf(state.row_max[h], exponential.scaled(most));
    const float shift = row_max == -INFINITY ? 0.0F : row_max;  // −∞ − −∞ would be NaN
    const float factor = exponential.difference(state.row_max[h], shift);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Tiling::columns / 4; ++i) {
      float& score = scores[i / 2][2 * h + i % 2];
      score = exponential(score, shift);
      sum += score;
    }
    state.row_max[h] = row_max;
    state.row_sum[h] = state.row_sum[h] * factor + sum;
#pragma unroll
    for (int i = 0; i < Tiling::dims / 4; ++i) state.output[i / 2][2 * h + i % 2] *= factor;
  }
}

// Shared memory: keys and values have two buffers each.
template <class Tiling, class T>
struct Tiles {
  using Tile = SharedTile<T, Tiling::dims>;

  Tile query;                     // (rows, dims)
  SharedArray<KeyRanges> ranges;  // (rows)
  SharedArray<T> keys, values;    // (2, columns, dims)

  __device__ static Tiles cut() {
    SharedCutter cutter;
    const auto query = cutter.take<T>(Tiling::rows * Tiling::dims);
    const auto ranges = cutter.take<KeyRanges>(Tiling::rows);
    const auto keys = cutter.take<T>(2 * Tiling::columns * Tiling::dims);
    return {Tile(query), ranges, keys, cutter.take<T>(2 * Tiling::columns * Tiling::dims)};
  }
  [[nodiscard]] __device__ Tile key(int buffer) const { return tile_of(keys, buffer); }
  [[nodiscard]] __device__ Tile value(int buffer) const { return tile_of(values, buffer); }

 private:
  __device__ static Tile tile_of(const SharedArray<T>& buffers, int buffer) {
    constexpr int size = Tiling::columns * Tiling::dims;
    return Tile(buffers.part(buffer * size, size));
  }
};

template <bool masked, class Tiling, class T>
__device__ void attend(RowState<Tiling>& state, const Tiles<Tiling, T>& tiles, int buffer, float scale, int32_t first,
                       int keys) {
  const int own_row = thread_index() / warp_size * 16;
  float scores[Tiling::columns / 8][4] = {};
  add_scores<Tiling::dims, Tiling::columns>(scores, tiles.query, own_row, tiles.key(buffer));
  SeenColumns seen{0xFFFFFFFFU};
  if constexpr (masked) {
    const Places places[2] = {Places::of(tiles.ranges[own_row + lane() / 4], first, keys),
                              Places::of(tiles.ranges[own_row + lane() / 4 + 8], first, keys)};
    seen = mask_scores<Tiling::columns>([&](int h, int column) { return places[h].hold(column); },
                                        [&](int j, int i) { scores[j][i] = -INFINITY; });
  }
  add_to_softmax<T>(scores, state, scale);
  add_product<masked, Tiling::dims, Tiling::columns>(state.output, scores, tiles.value(buffer), seen);
}

template <class Tiling, class T>
__device__ void finish_rows(RowState<Tiling>& state, const Args<T>& args, const LaneRows& at) {
  const int t = lane() % 4;
  for (int h = 0; h < 2; ++h) {
    float sum = state.row_sum[h];
    for (int mask = 1; mask < 4; mask *= 2) sum += shfl_sync_bfly(sum, mask);
    if (!at.there[h]) continue;
    const bool nothing = sum == 0;  // what a row saw adds at least 1
    if (t == 0 && args.last) args.log_sum[at.scalar(h)] = nothing ? -INFINITY : state.row_max[h] + logf(sum);
    if (t == 0 && !args.last) args.row_max[at.scalar(h)] = state.row_max[h], args.row_sum[at.scalar(h)] = sum;
#pragma unroll
    for (int n = 0; n < Tiling::dims / 8; ++n) {
      if (8 * n >= args.head_dim) continue;
      float pair[2] = {state.output[n][2 * h], state.output[n][2 * h + 1]};
      const int64_t place = at.scalar(h) * args.head_dim + 8 * n + 2 * t;
      if (!args.last) {
        store(args.state_output + place, pair);
        continue;
      }
      for (float& element : pair) element = nothing ? 0.0F : element / sum;
      store(args.output + place, pair);
    }
  }
}

template <class Tiling, class T>
__global__ void __launch_bounds__(Tiling::threads) attention_forward_kernel(const Args<T> args) {
  // From the last tile to the first: under a causal mask the long ones start first, so that all end together.
  const int64_t tile = args.tiles - 1 - block_index() % args.tiles, head = block_index() / args.tiles;
  const int64_t first_row = tile * Tiling::rows, kv_head = head / (args.heads / args.kv_heads);
  const int here = args.rows - first_row < Tiling::rows ? static_cast<int>(args.rows - first_row) : Tiling::rows;
  const Tiles<Tiling, T> tiles = Tiles<Tiling, T>::cut();
  const int64_t query_stride = int64_t{args.heads} * args.head_dim, key_stride = int64_t{args.kv_heads} * args.head_dim;
  tiles.query.template copy<Tiling::rows>(args.query + first_row * query_stride + head * args.head_dim, query_stride,
                                          here, args.head_dim);
  for (int i = thread_index(); i < Tiling::rows; i += block_threads()) {
    cp_async_16(tiles.ranges.address(i), args.ranges + (i < here ? first_row + i : 0), i < here);
  }
  cp_async_commit_group();
  cp_async_wait_group<0>();
  sync_threads();

  const Hull hull = Hull::of(tiles.ranges, here);
  const auto request = [&](const KeyCursor<T, Tiling::columns>& cursor, int buffer) {
    if (!cursor.at_end()) {
      const int64_t offset = cursor.begin * key_stride + kv_head * args.head_dim;
      tiles.key(buffer).template copy<Tiling::columns>(cursor.slice().key + offset, key_stride, cursor.keys(),
                                                       args.head_dim);
      tiles.value(buffer).template copy<Tiling::columns>(cursor.slice().value + offset, key_stride, cursor.keys(),
                                                         args.head_dim);
    }
    cp_async_commit_group();
  };
  KeyCursor<T, Tiling::columns> next{args.slices, hull};
  next.settle();
  request(next, 0);

  const int64_t row = first_row + thread_index() / warp_size * 16 + lane() / 4;
  const LaneRows at{{row, row + 8}, {row < args.rows, row + 8 < args.rows}, args.heads, head};
  RowState<Tiling> state;
  begin_rows(state, args, at);
  for (int buffer = 0; !next.at_end(); buffer ^= 1) {
    const auto first = static_cast<int32_t>(next.first());
    const int keys = next.keys();
    const bool full = next.full();
    next.advance();
    request(next, buffer ^ 1);
    cp_async_wait_group<1>();
    sync_threads();
    if (full) {
      attend<false>(state, tiles, buffer, args.scale, first, keys);
    } else {
      attend<true>(state, tiles, buffer, args.scale, first, keys);
    }
    sync_threads();  // before the next copy overwrites this buffer
  }
  finish_rows(state, args, at);
}

template <class T>
Args<T> kernel_args(const AttentionForward& args, std::span<const KeySlice> keys, int64_t tile_rows) {
  const bool with_state = !args.state.output.empty();
  return {.query = args.query.as<T>(),
          .ranges = reinterpret_cast<const KeyRanges*>(args.ranges.as<int32_t>()),
          .slices = slices_of<T>(keys),
          .scale = args.scale,
          .first = args.first,
          .last = args.last,
          .state_output = with_state ? args.state.output.as<float>() : nullptr,
          .row_max = with_state ? args.state.row_max.as<float>() : nullptr,
          .row_sum = with_state ? args.state.row_sum.as<float>() : nullptr,
          .output = args.last ? args.output.as<T>() : nullptr,
          .log_sum = args.last ? args.log_sum.as<float>() : nullptr,
          .rows = args.query.rows(),
          .tiles = ceil_divide(args.query.rows(), tile_rows),
          .heads = narrow<int>(args.query.dim(1)),
          .kv_heads = narrow<int>(kv_heads_of(args.query, keys)),
          .head_dim = narrow<int>(args.query.dim(2))};
}

}  // namespace

void CudaDevice::attention_forward(const AttentionForward& args, Stream stream) {
  require_supported(args);
  if (args.query.empty()) return;
  for_each_launch(args.keys.size(), [&](size_t begin, size_t count, bool first, bool last) {
    AttentionForward part = args;
    part.first = args.first && first;
    part.last = args.last && last;
    part.keys = args.keys.subspan(begin, count);
    require_shapes(part);  // more slices than one launch takes need a state
    with_kernel_type(args.query, [&]<class T, int dims>() {
      using Shape = Tiling<T, dims>;
      const Args<T> kernel = kernel_args<T>(part, part.keys, Shape::rows);
      launch(attention_forward_kernel<Shape, T>, kernel.tiles * kernel.heads, Shape::threads, Shape::shared_bytes,
             stream_of(stream), kernel);
    });
  });
}

}  // namespace annulus::cuda
