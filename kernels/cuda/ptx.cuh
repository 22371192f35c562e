// Every instruction of the GPU that C++ has no word for, shared memory, and a thread's place in its launch. Nothing
// else in kernels/cuda/ has `asm`, `__shared__` or a built-in variable of CUDA. One function for each instruction,
// named after it; section numbers are those of the PTX ISA, version 8.5. All need sm_80 or later.
//
// "g" and "t" below are lane / 4 and lane % 4. A register of two bfloat16 holds the one with the lower index in its low
// half.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace annulus::cuda {

// ---- A thread's place. Blocks and grids have one dimension; a warp has 32 lanes. ----

inline constexpr int warp_size = 32;

__device__ inline int thread_index() {
  return static_cast<int>(threadIdx.x);
}  // in the block
__device__ inline int block_threads() {
  return static_cast<int>(blockDim.x);
}
__device__ inline int64_t block_index() {
  return blockIdx.x;
}
__device__ inline int64_t grid_blocks() {
  return gridDim.x;
}

// ---- Barriers. Every thread of the block, or of the warp, arrives; what they wrote before is seen after. ----

__device__ inline void sync_threads() {
  __syncthreads();
}
__device__ inline void sync_warp() {
  __syncwarp();
}

// ---- Shared memory: what the launch asked for as dynamicSmemBytes, uninitialised. ----

// `size` elements of the block's shared memory.
template <class T>
class SharedArray {
 public:
  __device__ SharedArray(T* data, int size) : data_(data), size_(size) {}

  __device__ T& operator[](int i) const { return data_[i]; }
  __device__ T* address(int i) const { return data_ + i; }
  [[nodiscard]] __device__ int size() const { return size_; }

  // Elements [begin, begin + size).
  [[nodiscard]] __device__ SharedArray part(int begin, int size) const { return {data_ + begin, size}; }

 private:
  T* data_;
  int size_;
};

// The array of `size` elements that begins `byte_offset` bytes into the block's shared memory, a multiple of
// alignof(T); the memory itself is aligned to 16 bytes, so that a multiple of 16 suits every instruction below.
template <class T>
__device__ inline SharedArray<T> shared_array(int byte_offset, int size) {
  extern __shared__ __align__(16) unsigned char annulus_shared_memory[];
  return {reinterpret_cast<T*>(annulus_shared_memory + byte_offset), size};
}

// ---- Shuffles (9.7.9.6): all 32 lanes take part. ----

// The value of lane `lane ^ mask`.
template <class T>
__device__ inline T shfl_sync_bfly(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
}

// The value of lane `source`.
template <class T>
__device__ inline T shfl_sync_idx(T value, int source) {
  return __shfl_sync(0xFFFFFFFFU, value, source);
}

// ---- Arithmetic. ----

// a·b, rounded by itself: never contracted with an addition (9.7.3.8, mul.rn.f32).
__device__ inline float mul_rn(float a, float b) {
  return __fmul_rn(a, b);
}

// 2^x, to 2 units in the last place, results below 2^-126 are 0 (9.7.3.20, ex2.approx.ftz.f32).
__device__ inline float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Both rounded to bfloat16, to nearest even, a NaN to 0x7FFF: `low` in the low half (9.7.9.22, cvt.rn.bf16x2.f32).
__device__ inline uint32_t cvt_rn_bf16x2(float high, float low) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// ---- Copies from global to shared memory beside the arithmetic (9.7.9.25.3). ----

// Starts to copy 16 bytes; both addresses are multiples of 16. Where `valid` is false nothing is read and zeros are
// written. What is written may be read after cp_async_wait_group by this thread, and after a barrier beyond it by
// others.
__device__ inline void cp_async_16(void* shared, const void* global, bool valid) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t source_bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(source_bytes) : "memory");
}

// The same for 4 bytes, at multiples of 4 (cp.async.ca).
__device__ inline void cp_async_4(void* shared, const void* global, bool valid) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t source_bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(source_bytes) : "memory");
}

// Makes a group of all copies this thread started since its last group; a group may be empty.
__device__ inline void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most the `pending` latest groups of this thread are unfinished.
template <int pending>
__device__ inline void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- Matrices, by a whole warp. ----

// Loads four 8x8 matrices of 16-bit elements (9.7.14.5.15, ldmatrix.sync.aligned.m8n8.x4.shared.b16). Lane 8·i + j
// gives the address of row j of matrix i: 16 bytes of shared memory at a multiple of 16. Register i of a lane receives
// elements (g, 2t) and (g, 2t+1) of matrix i.
__device__ inline void ldmatrix_x4(uint32_t (&registers)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(from)
               : "memory");
}

// The same, but register i of a lane receives elements (2t, g) and (2t+1, g) of matrix i.
__device__ inline void ldmatrix_x4_trans(uint32_t (&registers)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(from)
               : "memory");
}

// d += a·b with float32 sums: a (16, 16) and b (16, 8) bfloat16, d (16, 8) float32
// (9.7.14.5.8, mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32). A lane holds
//   a[0] (g, 2t) (g, 2t+1)   a[1] (g+8, 2t) (g+8, 2t+1)   a[2] (g, 2t+8) (g, 2t+9)   a[3] (g+8, 2t+8) (g+8, 2t+9)
//   b0 (2t, g) (2t+1, g)     b1 (2t+8, g) (2t+9, g)
//   d[0] (g, 2t)   d[1] (g, 2t+1)   d[2] (g+8, 2t)   d[3] (g+8, 2t+1).
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace annulus::cuda
