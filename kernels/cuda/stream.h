// Streams and events of the current device, owned.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/check.h"
#include "kernels/device.h"
#include "kernels/handle.h"

namespace annulus::cuda {

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;

// A stream that does not wait for the default stream. Lower numbers come first; 0 is the lowest priority there is.
inline StreamHandle make_stream(int priority = 0) {
  cudaStream_t stream = nullptr;
  ANNULUS_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
  return StreamHandle(stream);
}

// An event that orders and does not measure.
inline EventHandle make_event() {
  cudaEvent_t event = nullptr;
  ANNULUS_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return EventHandle(event);
}

inline cudaStream_t cuda_stream(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

}  // namespace annulus::cuda
