// Sums over many rows, such as the gradient of a norm's weight: the same bits for any number of threads, and an error
// that does not grow with the number of rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/vector.h"
#include "kernels/memory.h"

namespace annulus::cpu {

struct RowSums {
  // Few rows are added in float32, those sums in float64, block by block; neither size depends on the threads.
  static constexpr int64_t rows_in_float32 = 32;
  static constexpr int64_t most_blocks = 64;

  static int64_t block_rows(int64_t rows) {
    return round_up(std::max<int64_t>(1, ceil_divide(rows, most_blocks)), rows_in_float32);
  }
  static int64_t workspace(int64_t rows, int64_t width) {
    return ceil_divide(rows, block_rows(rows)) * width * static_cast<int64_t>(sizeof(double) + sizeof(float));
  }

  int64_t rows = 0, width = 0;
  int threads = 1;
  const VectorMath& math;
  Memory& memory;  // for the partial sums

  // body(row, sum) adds its row's part to sum, (width) float32; then total, (width) float32, += the sum of all rows.
  template <class Body>
  void add_to(float* total, const Body& body) const {
    const int64_t in_block = block_rows(rows);
    const int64_t blocks = ceil_divide(rows, in_block);
    const Allocation scratch(memory, workspace(rows, width), Purpose::workspace);
    auto* const partials = static_cast<double*>(scratch.data());                    // (blocks, width)
    auto* const recent_sums = reinterpret_cast<float*>(partials + blocks * width);  // (blocks, width)

    parallel_for(threads, blocks, [&](int64_t block) {
      double* const partial = partials + block * width;
      float* const recent = recent_sums + block * width;
      std::fill_n(partial, width, 0.0);
      const int64_t block_end = std::min(rows, (block + 1) * in_block);
      for (int64_t begin = block * in_block; begin < block_end; begin += rows_in_float32) {
        std::fill_n(recent, width, 0.0F);
        for (int64_t row = begin; row < std::min(block_end, begin + rows_in_float32); ++row) body(row, recent);
        math.add_to_float64(partial, recent, width);
      }
    });
    for (int64_t i = 0; i < width; ++i) {
      double sum = 0;
      for (int64_t block = 0; block < blocks; ++block) sum += partials[block * width + i];
      total[i] = static_cast<float>(total[i] + sum);
    }
  }
};

}  // namespace annulus::cpu
