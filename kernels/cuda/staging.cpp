#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/memory.h"
#include "kernels/narrow.h"

namespace annulus::cuda {
namespace {

Handle<void*, cudaFreeHost> allocate_pinned(int64_t bytes) {
  void* data = nullptr;
  ANNULUS_CUDA_CHECK(cudaMallocHost(&data, static_cast<size_t>(bytes)));
  return Handle<void*, cudaFreeHost>(data);
}

}  // namespace

Staging::Staging() : ring_(allocate_pinned(ring_bytes)) {}

void Staging::upload(void* destination, const void* source, int64_t bytes, cudaStream_t stream) {
  for (int64_t done = 0; done < bytes; done += piece_bytes) {
    const int64_t piece = std::min(piece_bytes, bytes - done);
    std::byte* const pinned = take(piece);
    std::memcpy(pinned, static_cast<const std::byte*>(source) + done, static_cast<size_t>(piece));
    ANNULUS_CUDA_CHECK(cudaMemcpyAsync(static_cast<std::byte*>(destination) + done, pinned, static_cast<size_t>(piece),
                                       cudaMemcpyHostToDevice, stream));
    note(piece, stream);
  }
}

void Staging::download(void* destination, const void* source, int64_t bytes, cudaStream_t stream) {
  for (int64_t done = 0; done < bytes; done += piece_bytes) {
    const int64_t piece = std::min(piece_bytes, bytes - done);
    std::byte* const pinned = take(piece);
    ANNULUS_CUDA_CHECK(cudaMemcpyAsync(pinned, static_cast<const std::byte*>(source) + done, static_cast<size_t>(piece),
                                       cudaMemcpyDeviceToHost, stream));
    ANNULUS_CUDA_CHECK(cudaStreamSynchronize(stream));
    std::memcpy(static_cast<std::byte*>(destination) + done, pinned, static_cast<size_t>(piece));
  }
}

// The ring's oldest transfers lie just ahead of the next, so waiting for them in their order makes room.
std::byte* Staging::take(int64_t bytes) {
  const int64_t size = round_up(bytes, memory_alignment);
  if (next_ + size > ring_bytes) {
    while (!under_way_.empty() && under_way_.front().begin >= next_) finish_oldest();
    next_ = 0;
  }
  const auto in_the_way = [&](const Transfer& t) { return t.begin < next_ + size && t.end > next_; };
  while (!under_way_.empty() && in_the_way(under_way_.front())) finish_oldest();
  return static_cast<std::byte*>(ring_.get()) + next_;
}

void Staging::finish_oldest() {
  ANNULUS_CUDA_CHECK(cudaEventSynchronize(under_way_.front().done.get()));
  events_.push_back(std::move(under_way_.front().done));
  under_way_.pop_front();
}

void Staging::note(int64_t bytes, cudaStream_t stream) {
  if (events_.empty()) events_.push_back(make_event());
  EventHandle event = std::move(events_.back());
  events_.pop_back();
  ANNULUS_CUDA_CHECK(cudaEventRecord(event.get(), stream));
  const int64_t end = next_ + round_up(bytes, memory_alignment);
  under_way_.push_back({next_, end, std::move(event)});
  next_ = end;
}

}  // namespace annulus::cuda
