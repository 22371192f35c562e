// dQ: a block owns a tile of queries of one head, keys and values pass by.
#include "kernels/cuda/attention_backward.cuh"

namespace annulus::cuda {
namespace {

// The row log-sums and deltas of a lane's two rows.
struct LaneScalars {
  float log_sum[2] = {}, delta[2] = {};
};

template <bool masked, class Tiling, class T>
__device__ void add_query_gradient(float (&sums)[Tiling::dims / 8][4], const BackwardTiles<Tiling, T>& tiles,
                                   const SeenKeys<Tiling>& seen_keys, const LaneScalars& scalars, int buffer,
                                   float scale, const Passing& keys) {
  const int own_row = thread_index() / warp_size * 16;
  Scores<Tiling> scores = Scores<Tiling>::of(tiles, own_row, buffer);
  const Exponential<T> exponential{scale};
#pragma unroll
  for (int i = 0; i < Tiling::columns / 2; ++i) {
    scores.differentiate(i / 4, i % 4, exponential, scalars.log_sum[i % 4 / 2], scalars.delta[i % 4 / 2]);
  }
  SeenColumns seen{0xFFFFFFFFU};
  if constexpr (masked) {
    const Places places[2] = {Places::of(seen_keys.ranges[own_row + lane() / 4], keys.first, keys.rows),
                              Places::of(seen_keys.ranges[own_row + lane() / 4 + 8], keys.first, keys.rows)};
    seen = mask_scores<Tiling::columns>([&](int h, int column) { return places[h].hold(column); },
                                        [&](int j, int i) { scores.hide(j, i); });
  }
  add_product<masked, Tiling::dims, Tiling::columns>(sums, scores.ds, tiles.passing.first(buffer), seen);
}

template <class Tiling, class T>
__device__ void differentiate_queries(const BackwardArgs<T>& args, float* gradient, bool write,
                                      const BackwardTiles<Tiling, T>& tiles, const SeenKeys<Tiling>& seen_keys,
                                      const QueryTile& tile) {
  const Operands<T>& operands = args.operands;
  const int64_t own = operands.query_offset(tile.first_row, tile.head);
  const int stride = operands.query_stride();
  tiles.own_first.template copy<Tiling::rows>(operands.query + own, stride, tile.rows, operands.head_dim);
  tiles.own_second.template copy<Tiling::rows>(args.output_gradient + own, stride, tile.rows, operands.head_dim);
  seen_keys.copy(operands, tile);
  cp_async_commit_group();
  const LaneRows at = LaneRows::of(operands, tile);
  LaneScalars scalars;
  for (int h = 0; h < 2; ++h) {
    if (at.there[h]) scalars.log_sum[h] = args.log_sum[at.scalar(h)];
    if (at.there[h]) scalars.delta[h] = args.delta[at.scalar(h)];
  }
  cp_async_wait_group<0>();
  sync_threads();
  float sums[Tiling::dims / 8][4] = {};
  pass_over_keys(operands, tile, seen_keys, tiles.passing, [&]<bool masked>(int buffer, const Passing& keys) {
    add_query_gradient<masked>(sums, tiles, seen_keys, scalars, buffer, operands.scale, keys);
  });
  write_rows<Tiling>(gradient + own, stride, tile.rows, operands.head_dim, sums, operands.scale, !write);
}

template <class Tiling, class T>
__global__ void __launch_bounds__(Tiling::threads, 1)
    query_gradient_kernel(const BackwardArgs<T> args, float* gradient, bool write, uint32_t items) {
  SharedCutter cutter;
  const auto tiles = BackwardTiles<Tiling, T>::cut(cutter);
  const auto seen_keys = SeenKeys<Tiling>::cut(cutter);
  for_each_item(items, [&](int item) {
    differentiate_queries(args, gradient, write, tiles, seen_keys, QueryTile::of<Tiling>(args.operands, item));
  });
}

}  // namespace

void queue_query_gradient(const AttentionBackward& args, std::optional<int> multiprocessors, cudaStream_t stream) {
  with_kernel_type(args.query, [&]<class T, int dims>() {
    using Shape = BackwardTiling<T, dims>;
    const int64_t items = ceil_divide(args.query.rows(), Shape::rows) * args.query.dim(1);
    launch_over_items(query_gradient_kernel<Shape, T>, items, multiprocessors, Shape::threads,
                      BackwardTiles<Shape, T>::bytes + SeenKeys<Shape>::bytes, stream, backward_args<T>(args),
                      args.query_gradient.as<float>(), args.first);
  });
}

}  // namespace annulus::cuda
