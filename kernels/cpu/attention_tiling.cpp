#include "kernels/cpu/attention_tiling.h"

#include <numeric>

#include "kernels/cpu/vector.h"

namespace annulus::cpu {

int64_t tile_width(int64_t keys) {
  return *std::lower_bound(tile_widths.begin(), tile_widths.end(), keys);
}

const AttentionTileKernels& attention_tile_kernels() {
  static const Isa isa = best_isa();
  if (isa == Isa::v4) return multiplies_bfloat16() ? v4_bf16::attention_tile_kernels : v4::attention_tile_kernels;
  return isa == Isa::v3 ? v3::attention_tile_kernels : v2::attention_tile_kernels;
}

QueryTiling::QueryTiling(const View& query, std::span<const KeySlice> slices, int64_t stacked_rows)
    : rows(query.dim(0)),
      heads(query.dim(1)),
      head_dim(query.dim(2)),
      kv_heads(slices.empty() ? heads : slices.front().key.dim(1)),
      group(heads / kv_heads),
      dtype(query.dtype()) {
  tiles = ceil_divide(rows, std::max<int64_t>(1, stacked_rows / group));
  queries = ceil_divide(rows, std::max<int64_t>(1, tiles));
}

Gemm score_product(const QueryTiling& tiling, int64_t width) {
  return {.m = tiling.stacked(),
          .n = width,
          .k = tiling.head_dim,
          .ldc = width,
          .lda = tiling.head_dim,
          .ldb = tiling.head_dim,
          .dtype = tiling.dtype,
          .transpose_b = true};
}

int64_t score_stride(const QueryTiling& tiling, int64_t width) {
  return tiling.dtype == DType::float32 ? width : 2 * width;
}

std::span<const KeyRanges> key_ranges(const View& ranges, int64_t first, int64_t count) {
  return {reinterpret_cast<const KeyRanges*>(ranges.as<int32_t>()) + first, static_cast<size_t>(count)};
}

void HeadRows::unpack(const void* packed, int64_t count) const {
  const char* source = static_cast<const char*>(packed);
  for (int64_t i = 0; i < count; ++i, source += bytes_) std::memcpy(row(i), source, static_cast<size_t>(bytes_));
}

void HeadRows::add(const float* packed, int64_t count) const {
  const int64_t n = bytes_ / static_cast<int64_t>(sizeof(float));
  for (int64_t i = 0; i < count; ++i) {
    auto* destination = reinterpret_cast<float*>(row(i));
    for (int64_t j = 0; j < n; ++j) destination[j] += packed[i * n + j];
  }
}

int64_t key_tiles(std::span<const KeySlice> slices) {
  int64_t count = 0;
  for (const KeySlice& slice : slices) count += ceil_divide(slice.key.rows(), max_tile_width);
  return count;
}

KeyTile key_tile(std::span<const KeySlice> slices, int64_t index) {
  size_t slice = 0;
  for (int64_t here; index >= (here = ceil_divide(slices[slice].key.rows(), max_tile_width)); ++slice) index -= here;
  const int64_t first = index * max_tile_width;
  return {slice, first, std::min(max_tile_width, slices[slice].key.rows() - first)};
}

KeyRanges hull(std::span<const KeyRanges> queries) {
  KeyRanges result;
  const auto widen = [](int32_t& begin, int32_t& end, int32_t other_begin, int32_t other_end) {
    if (other_begin == other_end) return;
    begin = begin == end ? other_begin : std::min(begin, other_begin);
    end = std::max(end, other_end);
  };
  for (const KeyRanges& query : queries) {
    widen(result.begin0, result.end0, query.begin0, query.end0);
    widen(result.begin1, result.end1, query.begin1, query.end1);
  }
  return result;
}

bool meets(const KeyRanges& hull, int64_t first, int64_t keys) {
  const auto meet = [&](int32_t begin, int32_t end) { return begin < end && begin < first + keys && end > first; };
  return meet(hull.begin0, hull.end0) || meet(hull.begin1, hull.end1);
}

namespace {

ColumnRanges clipped(const KeyRanges& query, int64_t first, int64_t keys) {
  const auto clip = [&](int32_t key) { return static_cast<int32_t>(std::clamp<int64_t>(key - first, 0, keys)); };
  ColumnRanges r = {clip(query.begin0), clip(query.end0), clip(query.begin1), clip(query.end1)};
  if (r.begin0 == r.end0) r.begin0 = r.end0 = 0;
  if (r.begin1 == r.end1) r.begin1 = r.end1 = 0;
  return r;
}

}  // namespace

SeenKeys::SeenKeys(int32_t* counts, int64_t first, int64_t keys) : counts_(counts), first_(first), keys_(keys) {
  std::fill_n(counts_, keys + 1, 0);
}

// First the differences of how many see each key, then their running sum.
void SeenKeys::add(std::span<const KeyRanges> queries) {
  for (const KeyRanges& query : queries) {
    const ColumnRanges r = clipped(query, first_, keys_);
    ++counts_[r.begin0], --counts_[r.end0];
    ++counts_[r.begin1], --counts_[r.end1];
  }
}

void SeenKeys::finish() {
  std::partial_sum(counts_, counts_ + keys_, counts_);
}

TileMask::TileMask(ColumnRanges* ranges, std::span<const KeyRanges> queries, int64_t padded, int64_t first,
                   int64_t keys)
    : ranges_(ranges) {
  for (size_t i = 0; i < queries.size(); ++i) ranges_[i] = clipped(queries[i], first, keys);
  std::fill(ranges_ + queries.size(), ranges_ + padded, ColumnRanges{});
}

TileMask::Columns TileMask::columns(int64_t from, int64_t to) const {
  int32_t begin = max_tile_width, end = 0;
  for (int64_t query = from; query < to; ++query) {
    const ColumnRanges& r = ranges_[query];
    if (r.begin0 < r.end0) begin = std::min(begin, r.begin0), end = std::max(end, r.end0);
    if (r.begin1 < r.end1) begin = std::min(begin, r.begin1), end = std::max(end, r.end1);
  }
  return {std::min(begin, end), end};
}

}  // namespace annulus::cpu
