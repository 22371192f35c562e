// Attention forward (kernels/attention.h) in the manner of FlashAttention-2 (Dao, arXiv 2307.08691, algorithm 1): a
// block owns a tile of queries of one head, the keys and values of the next tile arrive while it works on this one, and
// nothing but the result leaves the block.
#include <cmath>

#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/device.h"

namespace annulus::cuda {
namespace {

template <class T>
struct Args {
  Operands<T> operands;
  bool first, last;
  float* state_output;
  float* row_max;
  float* row_sum;
  T* output;
  float* log_sum;
};

// What a lane holds of the rows g and g + 8 of its warp; of row_sum its own columns' part.
template <class Tiling>
struct RowState {
  float output[Tiling::dims / 8][4];
  float row_max[2];
  float row_sum[2];
};

template <class Tiling, class T>
__device__ void begin_rows(RowState<Tiling>& state, const Args<T>& args, const LaneRows& at) {
  const int t = lane() % 4, head_dim = args.operands.head_dim;
  for (int h = 0; h < 2; ++h) {
    const bool resume = !args.first && at.there[h];
    state.row_max[h] = resume ? args.row_max[at.scalar(h)] : -INFINITY;
    state.row_sum[h] = resume && t == 0 ? args.row_sum[at.scalar(h)] : 0.0F;
#pragma unroll
    for (int n = 0; n < Tiling::dims / 8; ++n) {
      float pair[2] = {};
      if (resume && 8 * n < head_dim) load(pair, args.state_output + at.scalar(h) * head_dim + 8 * n + 2 * t);
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

template <class Tiling, class T>
struct Tiles {
  SharedTile<T, Tiling::dims> query;  // (rows, dims)
  SeenKeys<Tiling> seen;
  PassingTiles<Tiling, T> keys;  // with values

  static constexpr int64_t bytes = Tiling::own_bytes + SeenKeys<Tiling>::bytes + Tiling::passing_bytes;
  __device__ static Tiles cut() {
    SharedCutter cutter;
    const auto query = cutter.take<T>(Tiling::rows * Tiling::dims);
    const auto seen = SeenKeys<Tiling>::cut(cutter);
    return {SharedTile<T, Tiling::dims>(query), seen, PassingTiles<Tiling, T>::cut(cutter)};
  }
};

template <bool masked, class Tiling, class T>
__device__ void attend(RowState<Tiling>& state, const Tiles<Tiling, T>& tiles, int buffer, float scale,
                       const Passing& keys) {
  const int own_row = thread_index() / warp_size * 16;
  float scores[Tiling::columns / 8][4] = {};
  add_scores<Tiling::dims, Tiling::columns>(scores, tiles.query, own_row, tiles.keys.first(buffer));
  SeenColumns seen{0xFFFFFFFFU};
  if constexpr (masked) {
    const Places places[2] = {Places::of(tiles.seen.ranges[own_row + lane() / 4], keys.first, keys.rows),
                              Places::of(tiles.seen.ranges[own_row + lane() / 4 + 8], keys.first, keys.rows)};
    seen = mask_scores<Tiling::columns>([&](int h, int column) { return places[h].hold(column); },
                                        [&](int j, int i) { scores[j][i] = -INFINITY; });
  }
  add_to_softmax<T>(scores, state, scale);
  add_product<masked, Tiling::dims, Tiling::columns>(state.output, scores, tiles.keys.second(buffer), seen);
}

template <class Tiling, class T>
__device__ void finish_rows(RowState<Tiling>& state, const Args<T>& args, const LaneRows& at) {
  const int t = lane() % 4, head_dim = args.operands.head_dim;
  for (int h = 0; h < 2; ++h) {
    float sum = state.row_sum[h];
    for (int mask = 1; mask < 4; mask *= 2) sum += shfl_sync_bfly(sum, mask);
    if (!at.there[h]) continue;
    const bool nothing = sum == 0;  // what a row saw adds at least 1
    if (t == 0 && args.last) args.log_sum[at.scalar(h)] = nothing ? -INFINITY : state.row_max[h] + logf(sum);
    if (t == 0 && !args.last) args.row_max[at.scalar(h)] = state.row_max[h], args.row_sum[at.scalar(h)] = sum;
#pragma unroll
    for (int n = 0; n < Tiling::dims / 8; ++n) {
      if (8 * n >= head_dim) continue;
      float pair[2] = {state.output[n][2 * h], state.output[n][2 * h + 1]};
      const int64_t place = at.scalar(h) * head_dim + 8 * n + 2 * t;
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
__device__ void attend_tile(const Args<T>& args, const Tiles<Tiling, T>& tiles, const QueryTile& tile) {
  const Operands<T>& operands = args.operands;
  tiles.query.template copy<Tiling::rows>(operands.query + operands.query_offset(tile.first_row, tile.head),
                                          operands.query_stride(), tile.rows, operands.head_dim);
  tiles.seen.copy(operands, tile);
  cp_async_commit_group();
  const LaneRows at = LaneRows::of(operands, tile);
  RowState<Tiling> state;
  begin_rows(state, args, at);
  cp_async_wait_group<0>();
  sync_threads();
  pass_over_keys(operands, tile, tiles.seen, tiles.keys, [&]<bool masked>(int buffer, const Passing& keys) {
    attend<masked>(state, tiles, buffer, operands.scale, keys);
  });
  finish_rows(state, args, at);
}

template <class Tiling, class T>
__global__ void __launch_bounds__(Tiling::threads, 1) attention_forward_kernel(const Args<T> args, uint32_t items) {
  const Tiles<Tiling, T> tiles = Tiles<Tiling, T>::cut();
  for_each_item(items, [&](int item) { attend_tile(args, tiles, QueryTile::of<Tiling>(args.operands, item)); });
}

template <class T>
Args<T> kernel_args(const AttentionForward& args) {
  const bool with_state = !args.state.output.empty();
  return {.operands = operands_of<T>(args),
          .first = args.first,
          .last = args.last,
          .state_output = with_state ? args.state.output.as<float>() : nullptr,
          .row_max = with_state ? args.state.row_max.as<float>() : nullptr,
          .row_sum = with_state ? args.state.row_sum.as<float>() : nullptr,
          .output = args.last ? args.output.as<T>() : nullptr,
          .log_sum = args.last ? args.log_sum.as<float>() : nullptr};
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
      using Shape = Tiling<T, dims, 64>;
      const int64_t items = ceil_divide(part.query.rows(), Shape::rows) * part.query.dim(1);
      launch_over_items(attention_forward_kernel<Shape, T>, items, attention_multiprocessors_, Shape::threads,
                        Tiles<Shape, T>::bytes, stream_of(stream), kernel_args<T>(part));
    });
  });
}

}  // namespace annulus::cuda
