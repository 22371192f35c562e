// How attention on the CPU is cut into tiles: shapes, packing, visibility and the order of work. Shared by forward and
// backward.
//
// Every product works on packed tiles in scratch, of few different shapes: strided operands cost oneDNN a third of its
// speed, and the shapes of a long run all stay in its cache of primitives.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <thread>

#include "kernels/attention.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel_for.h"

namespace annulus::cpu {

// Keys in a tile: the smallest of these that holds them, the rest of the tile zeros.
inline constexpr std::array<int64_t, 5> tile_widths = {16, 64, 128, 256, 512};
inline constexpr int64_t max_tile_width = tile_widths.back();
int64_t tile_width(int64_t keys);

// The inner loops for this CPU.
const AttentionTileKernels& attention_tile_kernels();

// How the query rows of one call are cut. The query heads that share a key head are stacked into the rows of one tile.
struct QueryTiling {
  // Tiles of about equal size with at most `stacked_rows` stacked rows, or one query.
  QueryTiling(const View& query, std::span<const KeySlice> slices, int64_t stacked_rows);

  int64_t rows, heads, head_dim;
  int64_t kv_heads;  // without slices: as many as heads
  int64_t group;     // query heads for each key head
  int64_t queries;   // in a tile
  int64_t tiles;     // that cover the rows; the last may be short
  DType dtype;

  [[nodiscard]] int64_t stacked() const { return queries * group; }
  [[nodiscard]] int64_t first_query(int64_t tile) const { return tile * queries; }
  [[nodiscard]] int64_t queries_of(int64_t tile) const { return std::min(queries, rows - first_query(tile)); }
};

// S = Q·Kᵀ on packed tiles, and of the same shape dP = dO·Vᵀ.
Gemm score_product(const QueryTiling& tiling, int64_t width);

// Elements between the rows of P and dS: bfloat16 lies in rows of float32.
int64_t score_stride(const QueryTiling& tiling, int64_t width);

// What queries [first, first + count) see, from a (rows, 4) int32 view.
std::span<const KeyRanges> key_ranges(const View& ranges, int64_t first, int64_t count);

// The columns of a view (rows, heads, ...) that belong to one of `kv_heads` key heads: a run of bytes in each row.
class HeadRows {
 public:
  HeadRows(const View& view, int64_t kv_heads, int64_t kv_head, int64_t first_row)
      : bytes_(view.row_elements() / kv_heads * size_of(view.dtype())), stride_(bytes_ * kv_heads) {
    data_ = static_cast<char*>(view.data()) + first_row * stride_ + kv_head * bytes_;
  }

  [[nodiscard]] char* row(int64_t i) const { return data_ + i * stride_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

  // Packs rows [0, count) and pads with zeros to `padded` rows; rows for which keep(row) is false become zeros unread.
  template <class Keep>
  void pack(void* packed, int64_t count, int64_t padded, const Keep& keep) const;
  void pack(void* packed, int64_t count, int64_t padded) const {
    pack(packed, count, padded, [](int64_t /*row*/) { return true; });
  }
  void unpack(const void* packed, int64_t count) const;
  void add(const float* packed, int64_t count) const;  // row += packed, both float32

 private:
  char* data_;
  int64_t bytes_, stride_;
};

// A tile of keys: keys [first, first + keys) of a slice.
struct KeyTile {
  size_t slice;
  int64_t first, keys;
};
int64_t key_tiles(std::span<const KeySlice> slices);                // how many there are
KeyTile key_tile(std::span<const KeySlice> slices, int64_t index);  // in the order of the slices

// Over queries, each range from its smallest begin to its largest end; a range nobody has is empty.
KeyRanges hull(std::span<const KeyRanges> queries);

// Whether keys [first, first + keys) meet a hull. If not, no query of it sees any of them.
bool meets(const KeyRanges& hull, int64_t first, int64_t keys);

// Which of up to max_tile_width keys somebody sees.
class SeenKeys {
 public:
  // `counts` has room for keys + 1.
  SeenKeys(int32_t* counts, int64_t first, int64_t keys);

  void add(std::span<const KeyRanges> queries);
  void finish();  // after the last add

  bool operator()(int64_t key) const { return counts_[key] > 0; }  // from `first`

 private:
  int32_t* counts_;
  int64_t first_, keys_;
};

// What the queries of a tile see of the keys [first, first + keys), up to max_tile_width.
class TileMask {
 public:
  // Queries from queries.size() to `padded` see nothing. `ranges` has room for all.
  TileMask(ColumnRanges* ranges, std::span<const KeyRanges> queries, int64_t padded, int64_t first, int64_t keys);

  // The first column that one of the queries [from, to) sees and the one after the last; equal if there is none.
  struct Columns {
    int64_t begin, end;
    [[nodiscard]] bool empty() const { return begin == end; }
    [[nodiscard]] int64_t count() const { return end - begin; }
    // Wider, to multiples of `step`.
    [[nodiscard]] Columns whole(int64_t step) const { return {begin / step * step, round_up(end, step)}; }
  };
  [[nodiscard]] Columns columns(int64_t from, int64_t to) const;

  [[nodiscard]] const ColumnRanges* ranges() const { return ranges_; }
  [[nodiscard]] bool sees(int64_t query) const {
    return ranges_[query].begin0 < ranges_[query].end0 || ranges_[query].begin1 < ranges_[query].end1;
  }

 private:
  ColumnRanges* ranges_;
};

// Cuts scratch into arrays aligned to 64 bytes. Without memory it only counts, so that one function both sizes and
// cuts.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* data) : data_(static_cast<char*>(data)) {}

  template <class T>
  T* take(int64_t count) {
    char* taken = data_ == nullptr ? nullptr : data_ + used_;
    used_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(taken);
  }
  [[nodiscard]] int64_t used() const { return used_; }

 private:
  char* data_;
  int64_t used_ = 0;
};

// Matrix products use one thread each while this lives: the threads share tiles, and a sum keeps its order whether a
// loop over tiles had several threads or, with a single tile, did not need them.
class OneThreadPerProduct {
 public:
  OneThreadPerProduct() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThreadPerProduct(const OneThreadPerProduct&) = delete;
  OneThreadPerProduct& operator=(const OneThreadPerProduct&) = delete;
  ~OneThreadPerProduct() { omp_set_num_threads(before_); }

 private:
  int before_;
};

// Who works on a task: `index` from 0 to the number of threads − 1 picks the scratch.
struct Worker {
  int64_t index;
  const std::function<void()>* progress;  // null on all threads but the calling one
  const std::atomic<bool>* failed;        // whether some worker has thrown

  void report() const {
    if (progress != nullptr && *progress) (*progress)();
  }
};

// body(worker, task) for tasks 0 to `tasks` − 1, each taken by whichever worker is free first. What a body throws ends
// the loop and is thrown on.
template <class Body>
void for_each_task(int threads, int64_t tasks, const std::function<void()>& progress, const Body& body);

// ------------------------------------------------------------------------------------------------------------------------

template <class Keep>
void HeadRows::pack(void* packed, int64_t count, int64_t padded, const Keep& keep) const {
  char* destination = static_cast<char*>(packed);
  const auto size = static_cast<size_t>(bytes_);
  for (int64_t i = 0; i < count; ++i, destination += bytes_) {
    if (keep(i)) {
      std::memcpy(destination, row(i), size);
    } else {
      std::memset(destination, 0, size);
    }
  }
  std::memset(destination, 0, static_cast<size_t>(padded - count) * size);
}

template <class Body>
void for_each_task(int threads, int64_t tasks, const std::function<void()>& progress, const Body& body) {
  std::atomic<int64_t> next = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr failure;
  const std::thread::id caller = std::this_thread::get_id();
  parallel_for(threads, std::min<int64_t>(threads, tasks), [&](int64_t index) {
    const Worker worker{index, std::this_thread::get_id() == caller ? &progress : nullptr, &failed};
    try {
      for (int64_t task = next++; task < tasks && !failed; task = next++) body(worker, task);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  if (progress && threads > 1) progress();  // the others may have taken every task
}

}  // namespace annulus::cpu
