// dK and dV: a block owns a tile of keys of one head, the queries that see any of them pass by, of every head that
// shares the keys.
#include "kernels/cuda/attention_backward.cuh"

namespace annulus::cuda {
namespace {

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

  __device__ QueryCursor(const Operands<T>& operands, const SharedArray<Sight>& sights, int64_t first_key,
                         int64_t last_key)
      : operands_(operands), sights_(sights), first_key_(first_key), last_key_(last_key) {
    settle();
  }

  [[nodiscard]] __device__ bool at_end() const { return row_ >= operands_.rows; }
  [[nodiscard]] __device__ int head_in_group() const { return head_; }
  [[nodiscard]] __device__ Passing tile() const {
    const int left = operands_.rows - row_;
    return {row_, left < Tiling::columns ? left : Tiling::columns, full_};
  }

  // The whole block comes here together.
  __device__ void advance() {
    if (++head_ < operands_.group()) return;
    head_ = 0;
    row_ += Tiling::columns;
    settle();
  }

 private:
  __device__ void settle() {
    for (; !at_end(); row_ += Tiling::columns) {
      if (row_ % batch == 0) look_through();
      int some = 0, all = static_cast<int>(Sight::all);
      for (int i = 0; i < Tiling::columns; ++i) {
        const int sight = static_cast<int>(sights_[row_ % batch + i]);
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
      const bool there = i < operands_.rows - row_;
      sights_[i] = there ? sight_of(operands_.ranges[row_ + i], first_key_, last_key_) : Sight::nobody;
    }
    sync_threads();
  }

  const Operands<T>& operands_;
  SharedArray<Sight> sights_;
  int64_t first_key_, last_key_;
  int row_ = 0;  // the first of the tile
  int head_ = 0;
  bool full_ = false;
};

// What belongs to the query rows of a passing tile, in two buffers.
template <class Tiling>
struct PassingRows {
  SharedArray<float> log_sum, delta;  // (2, columns)
  SharedArray<KeyRanges> ranges;      // (2, columns)

  static constexpr int64_t bytes = 2 * Tiling::columns * static_cast<int64_t>(2 * sizeof(float) + sizeof(KeyRanges));
  __device__ static PassingRows cut(SharedCutter& cutter) {
    const auto log_sum = cutter.take<float>(2 * Tiling::columns), delta = cutter.take<float>(2 * Tiling::columns);
    return {log_sum, delta, cutter.take<KeyRanges>(2 * Tiling::columns)};
  }
  template <class T>
  __device__ void copy(const BackwardArgs<T>& args, const Passing& queries, int head, int buffer) const {
    const int i = thread_index();
    if (i >= Tiling::columns) return;
    const bool there = i < queries.rows;
    const int row = there ? queries.first + i : 0;
    const int64_t scalar = int64_t{row} * args.operands.heads + head;
    cp_async_4(log_sum.address(buffer * Tiling::columns + i), args.log_sum + scalar, there);
    cp_async_4(delta.address(buffer * Tiling::columns + i), args.delta + scalar, there);
    cp_async_16(ranges.address(buffer * Tiling::columns + i), args.operands.ranges + row, there);
  }
};

template <class Tiling>
struct KeySums {
  float key[Tiling::dims / 8][4] = {};
  float value[Tiling::dims / 8][4] = {};
};

template <bool masked, class Tiling, class T>
__device__ void add_key_gradients(KeySums<Tiling>& sums, const BackwardTiles<Tiling, T>& tiles,
                                  const PassingRows<Tiling>& rows, int buffer, float scale, int32_t first_key) {
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
  add_product<masked, Tiling::dims, Tiling::columns>(sums.value, scores.p, tiles.passing.second(buffer), seen);
  add_product<masked, Tiling::dims, Tiling::columns>(sums.key, scores.ds, tiles.passing.first(buffer), seen);
}

// A tile of keys of one head. The first one is the longest.
struct KeyTile {
  int slice;
  int begin;  // row in the slice
  int kv_head;

  template <class Tiling, class T>
  __device__ static KeyTile of(const Operands<T>& operands, int item) {
    const Slice<T>* const slices = operands.slices.slice;
    int tile = item / operands.kv_heads;
    const int kv_head = item - tile * operands.kv_heads;
    const auto tiles_of = [&](int i) { return (slices[i].rows + Tiling::rows - 1) / Tiling::rows; };
    int slice = 0;
    for (; tile >= tiles_of(slice); ++slice) tile -= tiles_of(slice);
    return {slice, tile * Tiling::rows, kv_head};
  }
};

// What a block of keys has in shared memory.
template <class Tiling, class T>
struct KeyBlock {
  BackwardTiles<Tiling, T> tiles;
  PassingRows<Tiling> rows;
  SharedArray<Sight> sights;

  static constexpr int64_t bytes = BackwardTiles<Tiling, T>::bytes + PassingRows<Tiling>::bytes +
                                   QueryCursor<Tiling, T>::batch * static_cast<int64_t>(sizeof(Sight));
  __device__ static KeyBlock cut() {
    SharedCutter cutter;
    const auto tiles = BackwardTiles<Tiling, T>::cut(cutter);
    const auto rows = PassingRows<Tiling>::cut(cutter);
    return {tiles, rows, cutter.take<Sight>(QueryCursor<Tiling, T>::batch)};
  }
};

template <class Tiling, class T>
__device__ void differentiate_keys(const BackwardArgs<T>& args, const KeyGradients& gradients,
                                   const KeyBlock<Tiling, T>& block, const KeyTile& own) {
  const BackwardTiles<Tiling, T>& tiles = block.tiles;
  const PassingRows<Tiling>& rows = block.rows;
  const Operands<T>& operands = args.operands;
  const Slice<T>& slice = operands.slices.slice[own.slice];
  const int here = slice.rows - own.begin < Tiling::rows ? slice.rows - own.begin : Tiling::rows;
  const int64_t first_key = slice.first + own.begin, offset = operands.key_offset(own.begin, own.kv_head);
  const int stride = operands.key_stride();
  tiles.own_first.template copy<Tiling::rows>(slice.key + offset, stride, here, operands.head_dim);
  tiles.own_second.template copy<Tiling::rows>(slice.value + offset, stride, here, operands.head_dim);

  QueryCursor<Tiling, T> cursor(operands, block.sights, first_key, first_key + here);
  const auto request = [&](int buffer) {
    const Passing queries = cursor.tile();
    const int head = own.kv_head * operands.group() + cursor.head_in_group();
    const int64_t from = operands.query_offset(queries.first, head);
    tiles.passing.first(buffer).template copy<Tiling::columns>(operands.query + from, operands.query_stride(),
                                                               queries.rows, operands.head_dim);
    tiles.passing.second(buffer).template copy<Tiling::columns>(args.output_gradient + from, operands.query_stride(),
                                                                queries.rows, operands.head_dim);
    rows.copy(args, queries, head, buffer);
  };
  KeySums<Tiling> sums;
  pass_over(cursor, request, [&]<bool masked>(int buffer, const Passing& /*queries*/) {
    add_key_gradients<masked>(sums, tiles, rows, buffer, operands.scale, static_cast<int32_t>(first_key));
  });
  cp_async_wait_group<0>();  // the own tiles, where nothing passed by
  write_rows<Tiling>(gradients.key[own.slice] + offset, stride, here, operands.head_dim, sums.key, operands.scale,
                     false);
  write_rows<Tiling>(gradients.value[own.slice] + offset, stride, here, operands.head_dim, sums.value, 1.0F, false);
}

template <class Tiling, class T>
__global__ void __launch_bounds__(Tiling::threads, 1)
    key_gradient_kernel(const BackwardArgs<T> args, const KeyGradients gradients, uint32_t items) {
  const auto block = KeyBlock<Tiling, T>::cut();
  for_each_item(
      items, [&](int item) { differentiate_keys(args, gradients, block, KeyTile::of<Tiling>(args.operands, item)); });
}

}  // namespace

void queue_key_gradients(const AttentionBackward& args, std::optional<int> multiprocessors, cudaStream_t stream) {
  with_kernel_type(args.query, [&]<class T, int dims>() {
    using Shape = BackwardTiling<T, dims>;
    const BackwardArgs<T> kernel = backward_args<T>(args);
    KeyGradients gradients{};
    int64_t tiles = 0;
    for (size_t i = 0; i < args.keys.size(); ++i) {
      gradients.key[i] = args.key_gradients[i].key.as<float>();
      gradients.value[i] = args.key_gradients[i].value.as<float>();
      tiles += ceil_divide(args.keys[i].key.rows(), Shape::rows);
    }
    launch_over_items(key_gradient_kernel<Shape, T>, tiles * kernel.operands.kv_heads, multiprocessors, Shape::threads,
                      KeyBlock<Shape, T>::bytes, stream, kernel, gradients);
  });
}

}  // namespace annulus::cuda
