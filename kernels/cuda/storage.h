// Where tensors of a GPU wait beside its memory.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/file_storage.h"
#include "kernels/memory.h"
#include "kernels/storage.h"

namespace annulus::cuda {

// `bytes` bytes of pinned host memory, all zero; MemoryError where the host does not give them. Copies run on a stream
// of their own, beside what is computed, and are held in `memory`.
std::unique_ptr<Storage> make_host_storage(int64_t bytes, Memory& memory);

// For a file: chunks pass through pinned memory, on a stream of their own of GPU `gpu`.
std::unique_ptr<ChunkAccess> make_chunk_access(int gpu);

}  // namespace annulus::cuda
