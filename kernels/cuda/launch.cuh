// How kernels are launched.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/narrow.h"

namespace annulus::cuda {

inline constexpr int most_threads = 256;  // in a block

template <class... Parameters>
void allow_shared_bytes(void (*kernel)(Parameters...), int64_t shared_bytes) {
  constexpr int64_t without_asking = 48 * 1024;
  if (shared_bytes <= without_asking) return;
  ANNULUS_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, narrow<int>(shared_bytes)));
}

// How many blocks of `threads` threads with `shared_bytes` of shared memory each a multiprocessor holds at once.
template <class... Parameters>
int64_t resident_blocks(void (*kernel)(Parameters...), int threads, int64_t shared_bytes) {
  allow_shared_bytes(kernel, shared_bytes);
  int blocks = 0;
  ANNULUS_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(kernel),
                                                                   threads, static_cast<size_t>(shared_bytes)));
  require(blocks > 0, "a multiprocessor has room for a block of every kernel");
  return blocks;
}

// `blocks` blocks of `threads` threads with `shared_bytes` of shared memory each; nothing at all where there is no
// block.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  if (blocks == 0) return;
  allow_shared_bytes(kernel, shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(narrow<unsigned>(blocks));
  config.blockDim = dim3(narrow<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  ANNULUS_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace annulus::cuda
