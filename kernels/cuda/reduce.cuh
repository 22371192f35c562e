// Sums and maxima over the lanes of a warp and the threads of a block, in one fixed order.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cuda/ptx.cuh"

namespace annulus::cuda {

// On the host: how many lanes share `packs` packs.
inline int lanes_for(int64_t packs) {
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(packs, 1, warp_size))));
}

// Over groups of `lanes` neighbouring lanes, a power of two; every lane of the warp takes part and gets its group's.
template <class T>
__device__ inline T sum_over_lanes(T value, int lanes = warp_size) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) value += shfl_sync_bfly(value, mask);
  return value;
}

// Passes over NaN.
__device__ inline float maximum_over_lanes(float value) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2) value = fmaxf(value, shfl_sync_bfly(value, mask));
  return value;
}

inline constexpr int most_warps = 8;  // in a block of up to 256 threads

// Over the whole block, which has whole warps; every thread gets it. `scratch` has a place for each warp and is not
// used again before another barrier.
template <class T>
__device__ inline T sum_over_block(T value, const SharedArray<T>& scratch) {
  value = sum_over_lanes(value);
  if (thread_index() % warp_size == 0) scratch[thread_index() / warp_size] = value;
  sync_threads();
  T total = scratch[0];
  for (int warp = 1; warp < block_threads() / warp_size; ++warp) total += scratch[warp];
  return total;
}

__device__ inline float maximum_over_block(float value, const SharedArray<float>& scratch) {
  value = maximum_over_lanes(value);
  if (thread_index() % warp_size == 0) scratch[thread_index() / warp_size] = value;
  sync_threads();
  float maximum = scratch[0];
  for (int warp = 1; warp < block_threads() / warp_size; ++warp) maximum = fmaxf(maximum, scratch[warp]);
  return maximum;
}

}  // namespace annulus::cuda
