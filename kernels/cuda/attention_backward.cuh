// What the two kernels of attention backward (kernels/attention.h; Dao, arXiv 2307.08691, algorithm 2) share. One owns
// queries and writes dQ, one owns keys and writes dK and dV: each sum has one owner and one order, so there are no
// atomic additions and no partial results in memory, for the price of computing the scores twice.
#pragma once

#include "kernels/cuda/attention_launch.cuh"

namespace annulus::cuda {

template <class T, int dims>
using BackwardTiling = Tiling<T, dims, 32>;

// Queries come with their output's gradients, keys with values: a block owns the ones, the others pass by.
template <class Tiling, class T>
struct BackwardTiles {
  SharedTile<T, Tiling::dims> own_first, own_second;  // (rows, dims)
  PassingTiles<Tiling, T> passing;

  static constexpr int64_t bytes = 2 * Tiling::own_bytes + Tiling::passing_bytes;
  __device__ static BackwardTiles cut(SharedCutter& cutter) {
    using Tile = SharedTile<T, Tiling::dims>;
    const auto first = cutter.take<T>(Tiling::rows * Tiling::dims),
               second = cutter.take<T>(Tiling::rows * Tiling::dims);
    return {Tile(first), Tile(second), PassingTiles<Tiling, T>::cut(cutter)};
  }
};

// A lane's scores and the products of gradients with values. Both become what they are multiplied with afterwards.
template <class Tiling>
struct Scores {
  float p[Tiling::columns / 8][4];   // q·k, then the probability
  float ds[Tiling::columns / 8][4];  // do·v, then the score's gradient over scale

  template <class T>
  __device__ static Scores of(const BackwardTiles<Tiling, T>& tiles, int own_row, int buffer) {
    Scores scores{};
    add_scores<Tiling::dims, Tiling::columns>(scores.p, tiles.own_first, own_row, tiles.passing.first(buffer));
    add_scores<Tiling::dims, Tiling::columns>(scores.ds, tiles.own_second, own_row, tiles.passing.second(buffer));
    return scores;
  }

  template <class T>
  __device__ void differentiate(int j, int i, const Exponential<T>& exponential, float log_sum, float delta) {
    p[j][i] = exponential(p[j][i], log_sum);
    ds[j][i] = p[j][i] * (ds[j][i] - delta);
  }
  __device__ void hide(int j, int i) { p[j][i] = ds[j][i] = 0; }
};

// Writes rows g and g + 8 of a warp, `there` of the block's rows exist: to = factor · sums, or += where `add`.
template <class Tiling>
__device__ void write_rows(float* to, int64_t stride, int there, int head_dim, const float (&sums)[Tiling::dims / 8][4],
                           float factor, bool add) {
  for (int h = 0; h < 2; ++h) {
    const int row = thread_index() / warp_size * 16 + lane() / 4 + 8 * h;
    if (row >= there) continue;
#pragma unroll
    for (int n = 0; n < Tiling::dims / 8; ++n) {
      if (8 * n >= head_dim) continue;
      float* const place = to + row * stride + 8 * n + lane() % 4 * 2;
      float pair[2] = {};
      if (add) load(pair, place);
      for (int e = 0; e < 2; ++e) pair[e] += factor * sums[n][2 * h + e];
      store(place, pair);
    }
  }
}

template <class T>
struct BackwardArgs {
  Operands<T> operands;
  const T* output_gradient;  // (rows, heads, head_dim)
  const float* log_sum;      // (rows, heads)
  const float* delta;        // (rows, heads)
};

template <class T>
BackwardArgs<T> backward_args(const AttentionBackward& args) {
  return {.operands = operands_of<T>(args),
          .output_gradient = args.output_gradient.as<T>(),
          .log_sum = args.log_sum.as<float>(),
          .delta = args.delta.as<float>()};
}

// Queue one of the kernels each, with at most most_slices slices of keys, on `multiprocessors` multiprocessors
// (launch_over_items).
void queue_query_gradient(const AttentionBackward& args, std::optional<int> multiprocessors, cudaStream_t stream);
void queue_key_gradients(const AttentionBackward& args, std::optional<int> multiprocessors, cudaStream_t stream);

}  // namespace annulus::cuda
