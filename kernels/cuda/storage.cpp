#include "kernels/cuda/storage.h"

#include <cstring>
#include <string>
#include <utility>

#include "kernels/cuda/stream.h"
#include "kernels/error.h"
#include "kernels/handle.h"
#include "kernels/narrow.h"

namespace annulus::cuda {
namespace {

using PinnedMemory = Handle<void*, cudaFreeHost>;

PinnedMemory pin(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t result = cudaMallocHost(&data, static_cast<size_t>(bytes));
  if (result == cudaErrorMemoryAllocation) {
    throw MemoryError("the host does not give the " + std::to_string(bytes) +
                      " bytes of pinned memory that this rank's memory.offload_* settings need; free some, or use more "
                      "ranks or disk");
  }
  ANNULUS_CUDA_CHECK(result);
  return PinnedMemory(data);
}

// An event after what was queued on a stream so far.
EventHandle event_on(cudaStream_t stream) {
  EventHandle event = make_event();
  ANNULUS_CUDA_CHECK(cudaEventRecord(event.get(), stream));
  return event;
}

class HostTransfer final : public Transfer::State {
 public:
  HostTransfer(EventHandle done, const View& view, Memory& memory)
      : done_(std::move(done)), view_(view), memory_(memory) {
    memory_.hold(view_.data(), view_.bytes());
  }
  void wait(Stream stream) override {
    ANNULUS_CUDA_CHECK(cudaStreamWaitEvent(cuda_stream(stream), done_.get(), 0));
    memory_.let_go(view_.data(), view_.bytes());
  }

 private:
  EventHandle done_;
  View view_;
  Memory& memory_;
};

class HostStorage final : public Storage {
 public:
  HostStorage(int64_t bytes, Memory& memory)
      : memory_(memory), bytes_(bytes), block_(pin(bytes)), stream_(make_stream()) {
    std::memset(block_.get(), 0, static_cast<size_t>(bytes));
  }

  int64_t reserve(int64_t bytes) override {
    const int64_t begin = reserved_;
    reserved_ += round_up(bytes, memory_alignment);
    require(reserved_ <= bytes_, "a run stores no more than its plan");
    return begin;
  }
  Transfer store(int64_t offset, View source, Stream stream) override {
    return copy(at(offset, source.bytes()), source.data(), source, cudaMemcpyDeviceToHost, stream);
  }
  Transfer load(View destination, int64_t offset, Stream stream) override {
    return copy(destination.data(), at(offset, destination.bytes()), destination, cudaMemcpyHostToDevice, stream);
  }

 private:
  std::byte* at(int64_t offset, int64_t bytes) {
    require(offset >= 0 && offset + bytes <= reserved_, "a transfer stays within what was reserved");
    return static_cast<std::byte*>(block_.get()) + offset;
  }

  Transfer copy(void* to, const void* from, const View& view, cudaMemcpyKind kind, Stream stream) {
    const EventHandle ready = event_on(cuda_stream(stream));
    ANNULUS_CUDA_CHECK(cudaStreamWaitEvent(stream_.get(), ready.get(), 0));
    ANNULUS_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(view.bytes()), kind, stream_.get()));
    return Transfer(std::make_unique<HostTransfer>(event_on(stream_.get()), view, memory_));
  }

  Memory& memory_;
  int64_t bytes_, reserved_ = 0;
  PinnedMemory block_;
  StreamHandle stream_;
};

class StagedAccess final : public ChunkAccess {
 public:
  explicit StagedAccess(int gpu) : gpu_(gpu), staging_(pin(chunk_bytes)), stream_(make_stream()) {}

  std::function<void()> after(Stream stream) override {
    auto ready = std::make_shared<EventHandle>(event_on(cuda_stream(stream)));
    return [this, ready] {
      ANNULUS_CUDA_CHECK(cudaSetDevice(gpu_));  // of the background thread
      ANNULUS_CUDA_CHECK(cudaEventSynchronize(ready->get()));
    };
  }
  const std::byte* get(const std::byte* data, int64_t bytes) override {
    copy(staging_.get(), data, bytes, cudaMemcpyDeviceToHost);
    return static_cast<const std::byte*>(staging_.get());
  }
  std::byte* room(std::byte* /*data*/, int64_t /*bytes*/) override { return static_cast<std::byte*>(staging_.get()); }
  void put(std::byte* data, int64_t bytes) override { copy(data, staging_.get(), bytes, cudaMemcpyHostToDevice); }

 private:
  void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    ANNULUS_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_.get()));
    ANNULUS_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  }

  int gpu_;
  PinnedMemory staging_;
  StreamHandle stream_;
};

}  // namespace

std::unique_ptr<Storage> make_host_storage(int64_t bytes, Memory& memory) {
  return std::make_unique<HostStorage>(bytes, memory);
}

std::unique_ptr<ChunkAccess> make_chunk_access(int gpu) {
  return std::make_unique<StagedAccess>(gpu);
}

}  // namespace annulus::cuda
