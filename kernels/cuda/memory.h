// Device memory: the block under a planned arena, and buffers allocated one by one.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/planned_arena.h"

namespace annulus::cuda {

// One cudaMalloc of `bytes` bytes; MemoryError where the device has not as many. Poison is written in the order of
// `stream` and looked for after waiting for it.
std::unique_ptr<ArenaBlock> make_arena_block(int64_t bytes, cudaStream_t stream);

// One cudaMalloc for each buffer, for single operations. Sizes count rounded up to 64 bytes. With `poison`, every
// buffer is filled with the poison byte, in the order of `stream`, when it is allocated.
class CudaMemory final : public Memory {
 public:
  CudaMemory(bool poison, cudaStream_t stream) : poison_(poison), stream_(stream) {}

  void* allocate(int64_t bytes, Purpose purpose) override;
  void release(void* data, int64_t bytes, Purpose purpose) noexcept override;  // waits for the stream

  [[nodiscard]] int64_t live_bytes() const override { return live_bytes_; }
  [[nodiscard]] int64_t peak_bytes() const override { return peak_bytes_; }

 private:
  bool poison_;
  cudaStream_t stream_;
  int64_t live_bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace annulus::cuda
