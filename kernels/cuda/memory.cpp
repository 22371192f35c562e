#include "kernels/cuda/memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/narrow.h"

namespace annulus::cuda {
namespace {

void* allocate_on_device(int64_t bytes, const char* purpose) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    throw MemoryError("the GPU does not give the " + std::to_string(bytes) + " bytes this rank needs for " + purpose +
                      "; use more ranks, a shorter sequence or a smaller model");
  }
  check(error, "cudaMalloc");
  return data;
}

class DeviceBlock final : public ArenaBlock {
 public:
  DeviceBlock(int64_t bytes, cudaStream_t stream) : stream_(stream) {
    if (bytes > 0) data_ = static_cast<std::byte*>(allocate_on_device(bytes, "its arena"));
  }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  ~DeviceBlock() override {
    if (data_ != nullptr) cudaFree(data_);
  }

  [[nodiscard]] std::byte* data() const override { return data_; }

  // An error here returns at the next call that is checked.
  void fill_with_poison(std::byte* begin, int64_t bytes) noexcept override {
    if (bytes > 0) cudaMemsetAsync(begin, poison_byte, static_cast<size_t>(bytes), stream_);
  }
  [[nodiscard]] bool holds_poison(const std::byte* begin, int64_t bytes) const noexcept override {
    std::vector<std::byte> found(static_cast<size_t>(bytes));
    cudaMemcpyAsync(found.data(), begin, found.size(), cudaMemcpyDeviceToHost, stream_);
    cudaStreamSynchronize(stream_);
    return std::ranges::all_of(found, [](std::byte b) { return b == std::byte{poison_byte}; });
  }

 private:
  cudaStream_t stream_;
  std::byte* data_ = nullptr;
};

}  // namespace

std::unique_ptr<ArenaBlock> make_arena_block(int64_t bytes, cudaStream_t stream) {
  return std::make_unique<DeviceBlock>(bytes, stream);
}

void* CudaMemory::allocate(int64_t bytes, Purpose purpose) {
  const int64_t size = round_up(bytes, memory_alignment);
  if (size == 0) return nullptr;
  void* const data = allocate_on_device(size, name_of(purpose));
  if (poison_) ANNULUS_CUDA_CHECK(cudaMemsetAsync(data, poison_byte, static_cast<size_t>(size), stream_));
  live_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  return data;
}

void CudaMemory::release(void* data, int64_t bytes, Purpose /*purpose*/) noexcept {
  if (data == nullptr) return;
  live_bytes_ -= round_up(bytes, memory_alignment);
  cudaStreamSynchronize(stream_);
  cudaFree(data);
}

}  // namespace annulus::cuda
