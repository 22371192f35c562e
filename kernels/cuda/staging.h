// Pinned host memory between the caller's memory and the device, so that an upload returns without waiting for the
// device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/cuda/stream.h"
#include "kernels/handle.h"

namespace annulus::cuda {

class Staging {
 public:
  static constexpr int64_t ring_bytes = int64_t{64} << 20;
  static constexpr int64_t piece_bytes = ring_bytes / 8;  // of a transfer at once

  Staging();

  // `source` may be reused after the call. Waits only where what is under way fills the ring.
  void upload(void* destination, const void* source, int64_t bytes, cudaStream_t stream);

  // Waits for `stream`.
  void download(void* destination, const void* source, int64_t bytes, cudaStream_t stream);

 private:
  // Bytes [begin, end) of the ring, in use until `done`.
  struct Transfer {
    int64_t begin, end;
    EventHandle done;
  };

  std::byte* take(int64_t bytes);
  void finish_oldest();
  void note(int64_t bytes, cudaStream_t stream);

  Handle<void*, cudaFreeHost> ring_;
  int64_t next_ = 0;                 // where the next transfer begins
  std::deque<Transfer> under_way_;   // in their order
  std::vector<EventHandle> events_;  // to be used again
};

}  // namespace annulus::cuda
