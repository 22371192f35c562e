// What the attention kernels have in common but for their sums: their operands, the items a block works on, and the
// tiles that pass by the rows it owns.
#pragma once

#include "kernels/cuda/attention_tile.cuh"

namespace annulus::cuda {

// The rows a block owns and the columns of the tiles it passes over. Shared memory stays below 99 KiB, what every GPU
// from sm_80 on gives a block.
template <class T, int dims_, int columns_of_128>
struct Tiling {
  static constexpr bool tensor_cores = sizeof(T) == 2;
  static constexpr int dims = dims_;
  static constexpr int warps = (tensor_cores ? 8 : 4) / (dims == 256 ? 2 : 1);
  static constexpr int rows = 16 * warps;
  static constexpr int columns = (tensor_cores ? columns_of_128 : 16) / (dims == 256 ? 2 : 1);
  static constexpr int threads = warps * warp_size;

  static constexpr int64_t own_bytes = rows * dims * static_cast<int64_t>(sizeof(T));             // one SharedTile
  static constexpr int64_t passing_bytes = 4 * columns * dims * static_cast<int64_t>(sizeof(T));  // PassingTiles
};

// ---- Operands. ----

inline constexpr int most_slices = 32;  // of keys in one launch

template <class T>
struct Slice {
  const T* key;
  const T* value;
  int64_t first;
  int rows;
};

template <class T>
struct Slices {
  Slice<T> slice[most_slices];
  int count;
};

template <class T>
struct Operands {
  const T* query;           // (rows, heads, head_dim)
  const KeyRanges* ranges;  // (rows)
  Slices<T> slices;         // of keys and values (keys, kv_heads, head_dim)
  float scale;
  int rows, heads, kv_heads, head_dim;

  [[nodiscard]] __device__ int group() const { return heads / kv_heads; }
  [[nodiscard]] __device__ int query_stride() const { return heads * head_dim; }
  [[nodiscard]] __device__ int key_stride() const { return kv_heads * head_dim; }
  // Of a row's head in (rows, heads, head_dim).
  [[nodiscard]] __device__ int64_t query_offset(int row, int head) const {
    return int64_t{row} * query_stride() + head * head_dim;
  }
  [[nodiscard]] __device__ int64_t key_offset(int row, int kv_head) const {
    return int64_t{row} * key_stride() + kv_head * head_dim;
  }
};

// ---- Items: a tile that a block owns, of one head. ----

// Calls work(item) for every item that is this block's. Neighbouring items are the heads of one tile, and tiles come in
// the order of their work under a causal mask, the longest first: blocks that take items in turn end together, but for
// the length of one item.
template <class Work>
__device__ void for_each_item(uint32_t items, const Work& work) {
  for (auto item = static_cast<uint32_t>(block_index()); item < items; item += static_cast<uint32_t>(grid_blocks())) {
    sync_threads();  // the item before is done with the shared memory
    work(static_cast<int>(item));
  }
}

// A tile of queries of one head. The last one is the longest.
struct QueryTile {
  int first_row, head;
  int rows;  // those that exist

  template <class Tiling, class T>
  __device__ static QueryTile of(const Operands<T>& operands, int item) {
    const int from_end = item / operands.heads, last = (operands.rows - 1) / Tiling::rows;
    const int first_row = (last - from_end) * Tiling::rows, left = operands.rows - first_row;
    return {first_row, item - from_end * operands.heads, left < Tiling::rows ? left : Tiling::rows};
  }
};

// What the rows of a tile of queries see, in shared memory.
template <class Tiling>
struct SeenKeys {
  SharedArray<KeyRanges> ranges;  // (rows)
  SharedArray<Hull> hull;         // (1)

  static constexpr int64_t bytes = Tiling::rows * static_cast<int64_t>(sizeof(KeyRanges)) + sizeof(Hull);
  __device__ static SeenKeys cut(SharedCutter& cutter) {
    const auto ranges = cutter.take<KeyRanges>(Tiling::rows);
    return {ranges, cutter.take<Hull>(1)};
  }

  // Starts to copy the ranges.
  template <class T>
  __device__ void copy(const Operands<T>& operands, const QueryTile& tile) const {
    for (int i = thread_index(); i < Tiling::rows; i += block_threads()) {
      cp_async_16(ranges.address(i), operands.ranges + (i < tile.rows ? tile.first_row + i : 0), i < tile.rows);
    }
  }
  // From the ranges, of which `there` count. The whole block comes here together.
  __device__ void find_hull(int there) const {
    if (thread_index() < warp_size) {
      const Hull found = Hull::of(ranges, there);
      if (lane() == 0) hull[0] = found;
    }
    sync_threads();
  }
};

// The rows g and g + 8 of a lane's warp.
struct LaneRows {
  int row[2];
  bool there[2];  // whether they exist
  int heads, head;

  template <class T>
  __device__ static LaneRows of(const Operands<T>& operands, const QueryTile& tile) {
    const int row = tile.first_row + thread_index() / warp_size * 16 + lane() / 4;
    return {{row, row + 8}, {row < operands.rows, row + 8 < operands.rows}, operands.heads, tile.head};
  }
  [[nodiscard]] __device__ int64_t scalar(int h) const { return int64_t{row[h]} * heads + head; }  // in (rows, heads)
};

// ---- Tiles that pass by. ----

// Two kinds that come together, keys with values or queries with their output's gradients, in two buffers each.
template <class Tiling, class T>
class PassingTiles {
 public:
  using Tile = SharedTile<T, Tiling::dims>;

  __device__ static PassingTiles cut(SharedCutter& cutter) {
    const auto first = cutter.take<T>(2 * size);
    return {first, cutter.take<T>(2 * size)};
  }
  [[nodiscard]] __device__ Tile first(int buffer) const { return Tile(first_.part(buffer * size, size)); }
  [[nodiscard]] __device__ Tile second(int buffer) const { return Tile(second_.part(buffer * size, size)); }

 private:
  static constexpr int size = Tiling::columns * Tiling::dims;

  __device__ PassingTiles(const SharedArray<T>& first, const SharedArray<T>& second) : first_(first), second_(second) {}

  SharedArray<T> first_, second_;  // (2, columns, dims)
};

struct Passing {
  int32_t first;  // row
  int rows;       // those that exist
  bool full;      // whether they and the block's rows see each other whole
};

// Passes over the tiles of a cursor: request(buffer) starts to copy the one it stands at,
// body.operator()<masked>(buffer, tile) works on it while the next is under way. The whole block comes here together.
template <class Cursor, class Request, class Body>
__device__ void pass_over(Cursor& cursor, const Request& request, const Body& body) {
  const auto request_next = [&](int buffer) {
    if (!cursor.at_end()) request(buffer);
    cp_async_commit_group();
  };
  request_next(0);
  for (int buffer = 0; !cursor.at_end(); buffer ^= 1) {
    const Passing tile = cursor.tile();
    cursor.advance();
    request_next(buffer ^ 1);
    cp_async_wait_group<1>();
    sync_threads();
    if (tile.full) {
      body.template operator()<false>(buffer, tile);
    } else {
      body.template operator()<true>(buffer, tile);
    }
    sync_threads();  // before the next copy overwrites this buffer
  }
}

// The tiles of keys of which a block sees any.
template <class T, int columns>
struct KeyCursor {
  const Slices<T>& slices;
  const SharedArray<Hull>& hull;
  int index = 0;  // of the slice
  int begin = 0;  // row in the slice

  [[nodiscard]] __device__ bool at_end() const { return index == slices.count; }
  [[nodiscard]] __device__ const Slice<T>& slice() const { return slices.slice[index]; }
  [[nodiscard]] __device__ int64_t first() const { return slice().first + begin; }
  [[nodiscard]] __device__ int keys() const {
    const int left = slice().rows - begin;
    return left < columns ? left : columns;
  }
  [[nodiscard]] __device__ Passing tile() const {
    return {static_cast<int32_t>(first()), keys(), keys() == columns && hull[0].all_see(first(), first() + columns)};
  }

  // From here on to a tile that is seen.
  __device__ void settle() {
    for (; !at_end(); ++index, begin = 0) {
      const int64_t next = hull[0].next_key(first());
      if (next >= slice().first + slice().rows) continue;
      begin = static_cast<int>(next - slice().first) / columns * columns;
      return;
    }
  }
  __device__ void advance() {
    begin += columns;
    settle();
  }
};

// Passes over the keys and values that a tile of queries sees.
template <class Tiling, class T, class Body>
__device__ void pass_over_keys(const Operands<T>& operands, const QueryTile& tile, const SeenKeys<Tiling>& seen,
                               const PassingTiles<Tiling, T>& passing, const Body& body) {
  seen.find_hull(tile.rows);
  KeyCursor<T, Tiling::columns> cursor{operands.slices, seen.hull};
  cursor.settle();
  const int kv_head = tile.head / operands.group(), stride = operands.key_stride();
  const auto request = [&](int buffer) {
    const int64_t offset = operands.key_offset(cursor.begin, kv_head);
    passing.first(buffer).template copy<Tiling::columns>(cursor.slice().key + offset, stride, cursor.keys(),
                                                         operands.head_dim);
    passing.second(buffer).template copy<Tiling::columns>(cursor.slice().value + offset, stride, cursor.keys(),
                                                          operands.head_dim);
  };
  pass_over(cursor, request, body);
}

}  // namespace annulus::cuda
