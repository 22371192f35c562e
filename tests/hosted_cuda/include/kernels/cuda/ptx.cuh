// Stands before kernels/cuda/ptx.cuh in the include path of the hosted build: the same functions, performed by the
// hosted device. What each means is said there.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "hosted_cuda/kernel.h"

namespace annulus::cuda {

inline constexpr int warp_size = 32;

inline int thread_index() {
  return hosted::thread_index();
}
inline int block_threads() {
  return hosted::block_threads();
}
inline int64_t block_index() {
  return hosted::block_index();
}
inline int64_t grid_blocks() {
  return hosted::grid_blocks();
}

inline void sync_threads() {
  hosted::sync_threads();
}
inline void sync_warp() {
  hosted::sync_warp();
}

template <class T>
class SharedArray {
 public:
  SharedArray(T* data, int size) : data_(data), size_(size) {}

  T& operator[](int i) const { return *address(i); }
  T* address(int i) const {
    if (i < 0 || i >= size_) hosted::outside_shared_array(i, size_);
    return data_ + i;
  }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] SharedArray part(int begin, int size) const {
    if (begin < 0 || size < 0 || begin + size > size_) hosted::outside_shared_array(begin + size - 1, size_);
    return {data_ + begin, size};
  }

 private:
  T* data_;
  int size_;
};

template <class T>
inline SharedArray<T> shared_array(int byte_offset, int size) {
  return {static_cast<T*>(hosted::shared_memory(byte_offset, int64_t{size} * sizeof(T), alignof(T))), size};
}

template <class T>
inline T shfl_sync_idx(T value, int source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves registers of 32 bits");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = hosted::shuffle(bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
inline T shfl_sync_bfly(T value, int mask) {
  return shfl_sync_idx(value, (thread_index() % warp_size) ^ mask);
}

inline float mul_rn(float a, float b) {
  return a * b;
}

inline float ex2_approx_ftz(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126F ? 0.0F : y;
}

inline uint32_t cvt_rn_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7FFF;
  const bool above_half = (bits & 0x7FFF) != 0, odd = (bits & 0x10000) != 0;
  return (bits >> 16) + static_cast<uint32_t>((bits & 0x8000) != 0 && (above_half || odd));
}

inline uint32_t cvt_rn_bf16x2(float high, float low) {
  return cvt_rn_bf16(high) << 16 | cvt_rn_bf16(low);
}

inline void cp_async_16(void* shared, const void* global, bool valid) {
  hosted::cp_async(shared, global, 16, valid);
}
inline void cp_async_4(void* shared, const void* global, bool valid) {
  hosted::cp_async(shared, global, 4, valid);
}
inline void cp_async_commit_group() {
  hosted::cp_async_commit_group();
}
template <int pending>
inline void cp_async_wait_group() {
  hosted::cp_async_wait_group(pending);
}

inline void ldmatrix_x4(uint32_t (&registers)[4], const void* row) {
  hosted::ldmatrix_x4(registers, row, false);
}
inline void ldmatrix_x4_trans(uint32_t (&registers)[4], const void* row) {
  hosted::ldmatrix_x4(registers, row, true);
}
inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  hosted::mma_m16n8k16_bf16(d, a, b0, b1);
}

}  // namespace annulus::cuda
