// What a kernel running on the hosted device may ask of it; the hosted kernels/cuda/ptx.cuh is written in these. All
// apply to the CUDA thread that calls. A broken rule ends the kernel with a sticky error, as an illegal address does on
// a GPU, and hosted::last_fault() says which.
#pragma once

#include <cstdint>

namespace annulus::hosted {

int thread_index();
int block_threads();
int64_t block_index();
int64_t grid_blocks();

void sync_threads();
void sync_warp();

// `bytes` bytes of the block's shared memory from `offset` on.
void* shared_memory(int64_t offset, int64_t bytes, int64_t alignment);
[[noreturn]] void outside_shared_array(int64_t index, int64_t size);

// The value that lane `source` of the warp passes; orders no memory.
uint64_t shuffle(uint64_t value, int source);

void cp_async(void* shared, const void* global, int bytes, bool valid);
void cp_async_commit_group();
void cp_async_wait_group(int pending);

void ldmatrix_x4(uint32_t (&registers)[4], const void* row, bool transposed);
void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

}  // namespace annulus::hosted
