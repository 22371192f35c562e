// The one way a kernel is launched.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/narrow.h"

namespace annulus::cuda {

inline constexpr int most_threads = 256;  // in a block

// `blocks` blocks of `threads` threads with `shared_bytes` of shared memory each; nothing at all where there is no
// block.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, int64_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  if (blocks == 0) return;
  constexpr int64_t without_asking = 48 * 1024;
  if (shared_bytes > without_asking) {
    ANNULUS_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, narrow<int>(shared_bytes)));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(narrow<unsigned>(blocks));
  config.blockDim = dim3(narrow<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  ANNULUS_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace annulus::cuda
