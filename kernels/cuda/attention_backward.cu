// Attention backward (kernels/attention.h; Dao, arXiv 2307.08691, algorithm 2) as two kernels, one that owns queries
// and writes dQ, one that owns keys and writes dK and dV: each sum has one owner and one order, so there are no atomic
// additions and no partial results in memory, for the price of computing the scores twice.
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
  static constexpr int rows = 16 * warps;                                           // that a block owns
  static constexpr int columns = (tensor_cores ? 32 : 16) / (dims == 256 ? 2 : 1);  // of the tiles it passes over
  static constexpr int threads = warps * warp_size;
  static constexpr int64_t tile_bytes = (2 * rows + 4 * columns) * dims * static_cast<int64_t>(sizeof(T));
};

template <class T>
struct Args {
  const T* query;            // (rows, heads, head_dim)
  const T* output_gradient;  // (rows, heads, head_dim)
  const KeyRanges* ranges;   // (rows)
  const float* log_sum;      // (rows, heads)
  const float* delta;        // (rows, heads)
  Slices<T> slices;
  float scale;
  int64_t rows, tiles;
  int heads, kv_heads, head_dim;

  [[nodiscard]] __device__ int group() const { return heads / kv_heads; }
  [[nodiscard]] __device__ int64_t query_stride() const { return int64_t{heads} * head_dim; }
  [[nodiscard]] __device__ int64_t key_stride() const { return int64_t{kv_heads} * head_dim; }
};

// Two tiles that stay, two that pass by in two buffers each. Queries come with their output's gradients, keys with
// values.
template <class Tiling, class T>
struct Tiles {
  using Tile = SharedTile<T, Tiling::dims>;

  Tile own, own_other;                    // (rows, dims): queries and gradients, or keys and values
  SharedArray<T> passing, passing_other;  // (2, columns, dims): the opposite

  __device__ static Tiles cut(SharedCutter& cutter) {
    const auto own = cutter.take<T>(Tiling::rows * Tiling::dims),
               own_other = cutter.take<T>(Tiling::rows * Tiling::dims);
    const auto passing = cutter.take<T>(2 * Tiling::columns * Tiling::dims);
    return {Tile(own), Tile(own_other), passing, cutter.take<T>(2 * Tiling::columns * Tiling::dims)};
  }
  [[nodiscard]] __device__ Tile first(int buffer) const { return tile_of(passing, buffer); }
  [[nodiscard]] __device__ Tile second(int buffer) const { return tile_of(passing_other, buffer); }

 private:
  __device__ static Tile tile_of(const SharedArray<T>& buffers, int buffer) {
    constexpr int size = Tiling::columns * Tiling::dims;
    return Tile(buffers.part(buffer * size, size));
  }
};

// A lane's scores and the products of gradients with values. Both become what they are multiplied with afterwards.
template <class Tiling>
struct Scores {
  float p[Tiling::columns / 8][4];   // q·k, then the probability
  float ds[Tiling::columns / 8][4];  // do·v, then the score's gradient over scale

  template <class T>
  __device__ static Scores of(const Tiles<Tiling, T>& tiles, int own_row, int buffer) {
    Scores scores{};
    add_scores<Tiling::dims, Tiling::columns>(scores.p, tiles.own, own_row, tiles.first(buffer));
    add_scores<Tiling::dims, Tiling::columns>(scores.ds, tiles.own_other, own_row, tiles.second(buffer));
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

// ---- dQ ----

template <class Tiling>
inline constexpr int64_t query_shared_bytes = Tiling::tile_bytes +
                                              Tiling::rows* static_cast<int64_t>(sizeof(KeyRanges));

// The row log-sums and deltas of a lane's two rows.
struct LaneScalars {
  float log_sum[2] = {}, delta[2] = {};
};

template <bool masked, class Tiling, class T>
__device__ void add_query_gradient(float (&sums)[Tiling::dims / 8][4], const Tiles<Tiling, T>& tiles,
                                   const SharedArray<KeyRanges>& ranges, const LaneScalars& scalars, int buffer,
                                   float scale, int32_t first, int keys) {
  const int own_row = thread_index() / warp_size * 16;
  Scores<Tiling> scores = Scores<Tiling>::of(tiles, own_row, buffer);
  const Exponential<T> exponential{scale};
#pragma unroll
  for (int i = 0; i < Tiling::columns / 2; ++i) {
    scores.differentiate(i / 4, i % 4, exponential, scalars.log_sum[i % 4 / 2], scalars.delta[i % 4 / 2]);
  }
  SeenColumns seen{0xFFFFFFFFU};
  if constexpr (masked) {
    const Places places[2] = {Places::of(ranges[own_row + lane() / 4], first, keys),
                              Places::of(ranges[own_row + lane() / 4 + 8], first, keys)};
    seen = mask_scores<Tiling::columns>([&](int h, int column) { return places[h].hold(column); },
                                        [&](int j, int i) { scores.hide(j, i); });
  }
  add_product<masked, Tiling::dims, Tiling::columns>(sums, scores.ds, tiles.first(buffer), seen);
}

template <class Tiling, class T>
__global__ void __launch_bounds__(Tiling::threads)
    query_gradient_kernel(const Args<T> args, float* gradient, bool write) {
  // From the last tile to the first, as in the forward pass.
  const int64_t tile = args.tiles - 1 - block_index() % args.tiles, head = block_index() / args.tiles;
  const int64_t first_row = tile * Tiling::rows, kv_head = head / args.group();
  const int here = args.rows - first_row < Tiling::rows ? static_cast<int>(args.rows - first_row) : Tiling::rows;
  SharedCutter cutter;
  const Tiles<Tiling, T> tiles = Tiles<Tiling, T>::cut(cutter);
  const SharedArray<KeyRanges> ranges = cutter.take<KeyRanges>(Tiling::rows);
  const int64_t own = first_row * args.query_stride() + head * args.head_dim;
  tiles.own.template copy<Tiling::rows>(args.query + own, args.query_stride(), here, args.head_dim);
  tiles.own_other.template copy<Tiling::rows>(args.output_gradient + own, args.query_stride(), here, args.head_dim);
  for (int i = thread_index(); i < Tiling::rows; i += block_threads()) {
    cp_async_16(ranges.address(i), args.ranges + (i < here ? first_row + i : 0), i < here);
  }
  cp_async_commit_group();
  cp_async_wait_group<0>();
  sync_threads();

  const Hull hull = Hull::of(ranges, here);
  const auto request = [&](const KeyCursor<T, Tiling::columns>& cursor, int buffer) {
    if (!cursor.at_end()) {
      const int64_t offset = cursor.begin * args.key_stride() + kv_head * args.head_dim;
      tiles.first(buffer).template copy<Tiling::columns>(cursor.slice().key + offset, args.key_stride(), cursor.keys(),
                                                         args.head_dim);
      tiles.second(buffer).template copy<Tiling::columns>(cursor.slice().value + offset, args.key_stride(),
                                                          cursor.keys(), args.head_dim);
    }
    cp_async_commit_group();
  };
  KeyCursor<T, Tiling::columns> next{args.slices, hull};
  next.settle();
  request(next, 0);

  LaneScalars scalars;
  for (int h = 0; h < 2; ++h) {
    const int64_t row = first_row + thread_index() / warp_size * 16 + lane() / 4 + 8 * h;
    if (row < args.rows) scalars.log_sum[h] = args.log_sum[row * args.heads + head];
    if (row < args.rows) scalars.delta[h] = args.delta[row * args.heads + head];
  }
  float sums[Tiling::dims / 8][4] = {};
  for (int buffer = 0; !next.at_end(); buffer ^= 1) {
    const auto first = static_cast<int32_t>(next.first());
    const int keys = next.keys();
    const bool full = next.full();
    next.advance();
    request(next, buffer ^ 1);
    cp_async_wait_group<1>();
    sync_threads();
    if (full) {
      add_query_gradient<false>(sums, tiles, ranges, scalars, buffer, args.scale, first, keys);
    } else {
      add_query_gradient<true>(sums, tiles, ranges, scalars, buffer, args.scale, first, keys);
    }
    sync_threads();  // before the next copy overwrites this buffer
  }
  write_rows<Tiling>(gradient + own, args.query_stride(), here, args.head_dim, sums, args.scale, !write);
}

// ---- dK and dV ----

struct KeyGradients {
  float* key[most_slices];
  float* value[most_slices];
};

// What a query row sees of the keys of a block, by bits: 1 some, 2 all. A row that does not exist neither makes a tile
// worth visiting nor needs a mask: it is all zeros.
enum class Sight : uint8_t { none = 0, some = 1, nobody = 2, all = 3 };

__device__ inline Sight sight_of(const KeyRanges& r, int64_t first, int64_t last) {
  const bool meets = (r.begin0 < r.end0 && r.begin0 < last && r.end0 > first) ||
                     (r.begin1 < r.end1 && r.begin1 < last && r.end1 > first);
  const bool holds = (r.begin0 <= first && last <= r.end0) || (r.begin1 <= first && last <= r.end1);
  return holds ? Sight::all : meets ? Sight::some : Sight::none;
}

// Passes over the tiles of queries that see any key of a block; each once for every query head that shares the block's.
// The rows' ranges are looked through many tiles at a time.
template <class Tiling, class T>
class QueryCursor {
 public:
  static constexpr int batch = 32 * Tiling::columns;  // rows

  __device__ QueryCursor(const Args<T>& args, const SharedArray<Sight>& sights, int64_t first_key, int64_t last_key)
      : args_(args), sights_(sights), first_key_(first_key), last_key_(last_key) {
    settle();
  }

  [[nodiscard]] __device__ bool at_end() const { return row_ >= args_.rows; }
  [[nodiscard]] __device__ int64_t first_row() const { return row_; }
  [[nodiscard]] __device__ int head_in_group() const { return head_; }
  [[nodiscard]] __device__ bool full() const { return full_; }
  [[nodiscard]] __device__ int rows() const {
    const int64_t left = args_.rows - row_;
    return left < Tiling::columns ? static_cast<int>(left) : Tiling::columns;
  }

  // The whole block comes here together.
  __device__ void advance() {
    if (++head_ < args_.group()) return;
    head_ = 0;
    row_ += Tiling::columns;
    settle();
  }

 private:
  __device__ void settle() {
    for (; !at_end(); row_ += Tiling::columns) {
      if (row_ >= looked_through_) look_through();
      int some = 0, all = static_cast<int>(Sight::all);
      for (int i = 0; i < Tiling::columns; ++i) {
        const int sight = static_cast<int>(sights_[static_cast<int>(row_ % batch) + i]);
        some |= sight;
        all &= sight;
      }
      full_ = (all & static_cast<int>(Sight::nobody)) != 0;
      if ((some & static_cast<int>(Sight::some)) != 0) return;
    }
  }

  __device__ void look_through() {
    sync_threads();  // all are done with the batch before
    for (int i = thread_index(); i < batch; i += block_threads()) {
      const int64_t row = row_ + i;
      sights_[i] = row < args_.rows ? sight_of(args_.ranges[row], first_key_, last_key_) : Sight::nobody;
    }
    sync_threads();
    looked_through_ = row_ + batch;
  }

  const Args<T>& args_;
  SharedArray<Sight> sights_;
  int64_t first_key_, last_key_;
  int64_t row_ = 0;             // the first of the tile; batches begin at multiples of their size
  int64_t looked_through_ = 0;  // rows before this one
  int head_ = 0;
  bool full_ = false;
};

// What belongs to the query rows of a passing tile, in two buffers.
template <class Tiling>
struct PassingRows {
  SharedArray<float> log_sum, delta;  // (2, columns)
  SharedArray<KeyRanges> ranges;      // (2, columns)

  __device__ static PassingRows cut(SharedCutter& cutter) {
    const auto log_sum = cutter.take<float>(2 * Tiling::columns), delta = cutter.take<float>(2 * Tiling::columns);
    return {log_sum, delta, cutter.take<KeyRanges>(2 * Tiling::columns)};
  }
  template <class T>
  __device__ void copy(const Args<T>& args, int64_t first_row, int there, int64_t head, int buffer) const {
    const int i = thread_index();
    if (i >= Tiling::columns) return;
    const int64_t row = i < there ? first_row + i : 0;
    cp_async_4(log_sum.address(buffer * Tiling::columns + i), args.log_sum + row * args.heads + head, i < there);
    cp_async_4(delta.address(buffer * Tiling::columns + i), args.delta + row * args.heads + head, i < there);
    cp_async_16(ranges.address(buffer * Tiling::columns + i), args.ranges + row, i < there);
  }
};

template <class Tiling>
inline constexpr int64_t key_shared_bytes = Tiling::tile_bytes +
                                            2 * Tiling::columns* static_cast<int64_t>(2 * sizeof(float) +
                                                                                      sizeof(KeyRanges)) +
                                            32 * Tiling::columns;

template <class Tiling>
struct KeySums {
  float key[Tiling::dims / 8][4] = {};
  float value[Tiling::dims / 8][4] = {};
};

template <bool masked, class Tiling, class T>
__device__ void add_key_gradients(KeySums<Tiling>& sums, const Tiles<Tiling, T>& tiles, const PassingRows<Tiling>& rows,
                                  int buffer, float scale, int32_t first_key) {
  const int own_row = thread_index() / warp_size * 16;
  Scores<Tiling> scores = Scores<Tiling>::of(tiles, own_row, buffer);
  const Exponential<T> exponential{scale};
#pragma unroll
  for (int i = 0; i < Tiling::columns / 2; ++i) {
    const int column = buffer * Tiling::columns + i / 4 * 8 + lane() % 4 * 2 + i % 2;
    scores.differentiate(i / 4, i % 4, exponential, rows.log_sum[column], rows.delta[column]);
  }
  SeenColumns seen{0xFFFFFFFFU};
  if constexpr (masked) {
    const int32_t upper = first_key + own_row + lane() / 4;
    seen = mask_scores<Tiling::columns>(
        [&](int h, int column) { return sees(rows.ranges[buffer * Tiling::columns + column], upper + 8 * h); },
        [&](int j, int i) { scores.hide(j, i); });
  }
  add_product<masked, Tiling::dims, Tiling::columns>(sums.value, scores.p, tiles.second(buffer), seen);
  add_product<masked, Tiling::dims, Tiling::columns>(sums.key, scores.ds, tiles.first(buffer), seen);
}

// The slice and the first row in it that a block owns.
struct OwnKeys {
  int slice;
  int64_t begin;
};

template <class Tiling, class T>
__device__ OwnKeys own_keys(const Slices<T>& slices, int64_t tile) {
  int slice = 0;
  for (; tile * Tiling::rows >= slices.slice[slice].rows; ++slice) {
    tile -= (slices.slice[slice].rows + Tiling::rows - 1) / Tiling::rows;
  }
  return {slice, tile * Tiling::rows};
}

template <class Tiling, class T>
__global__ void __launch_bounds__(Tiling::threads)
    key_gradient_kernel(const Args<T> args, const KeyGradients gradients) {
  const int64_t kv_head = block_index() / args.tiles;
  const OwnKeys own = own_keys<Tiling>(args.slices, block_index() % args.tiles);
  const Slice<T>& slice = args.slices.slice[own.slice];
  const int here = slice.rows - own.begin < Tiling::rows ? static_cast<int>(slice.rows - own.begin) : Tiling::rows;
  const int64_t first_key = slice.first + own.begin, offset = own.begin * args.key_stride() + kv_head * args.head_dim;
  SharedCutter cutter;
  const Tiles<Tiling, T> tiles = Tiles<Tiling, T>::cut(cutter);
  const auto rows = PassingRows<Tiling>::cut(cutter);
  const SharedArray<Sight> sights = cutter.take<Sight>(QueryCursor<Tiling, T>::batch);
  tiles.own.template copy<Tiling::rows>(slice.key + offset, args.key_stride(), here, args.head_dim);
  tiles.own_other.template copy<Tiling::rows>(slice.value + offset, args.key_stride(), here, args.head_dim);

  const auto request = [&](const QueryCursor<Tiling, T>& cursor, int buffer) {
    if (!cursor.at_end()) {
      const int64_t head = kv_head * args.group() + cursor.head_in_group();
      const int64_t from = cursor.first_row() * args.query_stride() + head * args.head_dim;
      tiles.first(buffer).template copy<Tiling::columns>(args.query + from, args.query_stride(), cursor.rows(),
                                                         args.head_dim);
      tiles.second(buffer).template copy<Tiling::columns>(args.output_gradient + from, args.query_stride(),
                                                          cursor.rows(), args.head_dim);
      rows.copy(args, cursor.first_row(), cursor.rows(), head, buffer);
    }
    cp_async_commit_group();
  };
  QueryCursor<Tiling, T> next(args, sights, first_key, first_key + here);
  request(next, 0);
  KeySums<Tiling> sums;
  for (int buffer = 0; !next.at_end(); buffer ^= 1) {
    const bool full = next.full();
    next.advance();
    request(next, buffer ^ 1);
    cp_async_wait_group<1>();
    sync_threads();
    if (full) {
      add_key_gradients<false>(sums, tiles, rows, buffer, args.scale, static_cast<int32_t>(first_key));
    } else {
      add_key_gradients<true>(sums, tiles, rows, buffer, args.scale, static_cast<int32_t>(first_key));
    }
    sync_threads();  // before the next copy overwrites this buffer
  }
  cp_async_wait_group<0>();
  write_rows<Tiling>(gradients.key[own.slice] + offset, args.key_stride(), here, args.head_dim, sums.key, args.scale,
                     false);
  write_rows<Tiling>(gradients.value[own.slice] + offset, args.key_stride(), here, args.head_dim, sums.value, 1.0F,
                     false);
}

// ---- Launches. ----

template <class T>
Args<T> kernel_args(const AttentionBackward& args, std::span<const KeySlice> keys, int64_t tiles) {
  return {.query = args.query.as<T>(),
          .output_gradient = args.output_gradient.as<T>(),
          .ranges = reinterpret_cast<const KeyRanges*>(args.ranges.as<int32_t>()),
          .log_sum = args.log_sum.as<float>(),
          .delta = args.delta.as<float>(),
          .slices = slices_of<T>(keys),
          .scale = args.scale,
          .rows = args.query.rows(),
          .tiles = tiles,
          .heads = narrow<int>(args.query.dim(1)),
          .kv_heads = narrow<int>(kv_heads_of(args.query, keys)),
          .head_dim = narrow<int>(args.query.dim(2))};
}

template <class T, int dims>
void launch_query_gradient(const AttentionBackward& args, std::span<const KeySlice> keys, bool write,
                           cudaStream_t stream) {
  using Shape = Tiling<T, dims>;
  const Args<T> kernel = kernel_args<T>(args, keys, ceil_divide(args.query.rows(), Shape::rows));
  launch(query_gradient_kernel<Shape, T>, kernel.tiles * kernel.heads, Shape::threads, query_shared_bytes<Shape>,
         stream, kernel, args.query_gradient.as<float>(), write);
}

template <class T, int dims>
void launch_key_gradients(const AttentionBackward& args, std::span<const KeySlice> keys,
                          std::span<const KeyGradientSlice> gradients, cudaStream_t stream) {
  using Shape = Tiling<T, dims>;
  KeyGradients places{};
  int64_t tiles = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    places.key[i] = gradients[i].key.as<float>();
    places.value[i] = gradients[i].value.as<float>();
    tiles += ceil_divide(keys[i].key.rows(), Shape::rows);
  }
  const Args<T> kernel = kernel_args<T>(args, keys, tiles);
  launch(key_gradient_kernel<Shape, T>, tiles * kernel.kv_heads, Shape::threads, key_shared_bytes<Shape>, stream,
         kernel, places);
}

}  // namespace

void CudaDevice::attention_backward(const AttentionBackward& args, Stream stream) {
  require_supported(args);
  for_each_launch(args.keys.size(), [&](size_t begin, size_t count, bool first, bool /*last*/) {
    const auto keys = args.keys.subspan(begin, count);
    with_kernel_type(args.query, [&]<class T, int dims>() {
      launch_query_gradient<T, dims>(args, keys, args.first && first, stream_of(stream));
      launch_key_gradients<T, dims>(args, keys, args.key_gradients.subspan(begin, count), stream_of(stream));
    });
  });
}

}  // namespace annulus::cuda
