// Bugs that need not show in any number: ThreadSanitizer names them. Where it does not watch these only run.
#include <chrono>
#include <thread>

#include "tests/hosted_cuda/fixture.h"

namespace annulus::hosted {
namespace {

using cuda::shared_array;
using cuda::SharedArray;

class Race : public HostedCuda {
 protected:
  Race() {
    if (!watched) return;
    expect_race();
  }
};

// The copy has long been made, and yet nothing says so.
TEST_F(Race, AFinishedCopyWithoutAWait) {
  void *pinned = nullptr, *device = nullptr;
  EXPECT_SUCCESS(cudaMallocHost(&pinned, 4));
  EXPECT_SUCCESS(cudaMalloc(&device, 4));
  EXPECT_SUCCESS(cudaMemsetAsync(device, 0, 4, stream()));
  EXPECT_SUCCESS(cudaMemcpyAsync(pinned, device, 4, cudaMemcpyDeviceToHost, stream()));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(*static_cast<int*>(pinned), 0);
  EXPECT_SUCCESS(cudaFree(device));
  EXPECT_SUCCESS(cudaFreeHost(pinned));
}

TEST_F(Race, AnEventThatTheOtherStreamDoesNotWaitFor) {
  const cudaStream_t other = new_stream();
  const DeviceArray<int> data(std::vector<int>(256), stream());
  EXPECT_SUCCESS(cudaStreamSynchronize(stream()));
  EXPECT_SUCCESS(cudaMemsetAsync(data.get(), 1, data.bytes(), stream()));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_SUCCESS(cudaMemsetAsync(data.get(), 2, data.bytes(), other));
  EXPECT_SUCCESS(cudaStreamSynchronize(other));
}

__global__ void reverse_without_barrier(int* out) {
  const int threads = cuda::block_threads(), i = cuda::thread_index();
  const SharedArray<int> shared = shared_array<int>(0, threads);
  shared[i] = i;
  out[i] = shared[threads - 1 - i];
}

TEST_F(Race, AMissingBarrierBeforeSharedMemoryIsRead) {
  const DeviceArray<int> out(std::vector<int>(64), stream());
  EXPECT_SUCCESS(run(reverse_without_barrier, 1, 64, 256, out.get()));
}

// Right in every number: the threads happen to come in their order.
__global__ void shift_twice(int* out) {
  const int i = cuda::thread_index();
  const SharedArray<int> shared = shared_array<int>(0, 65);
  shared[i] = i;
  cuda::sync_threads();
  out[i] = shared[(i + 1) % 64];
  shared[i] = 1;  // somebody may still have to read it
}

TEST_F(Race, AMissingBarrierBeforeSharedMemoryIsReused) {
  const DeviceArray<int> out(std::vector<int>(64), stream());
  EXPECT_SUCCESS(run(shift_twice, 1, 64, 65 * 4, out.get()));
}

__global__ void all_write_zero(int* out) {
  out[0] = 0;
}

TEST_F(Race, TwoBlocksThatWriteTheSame) {
  const DeviceArray<int> out(std::vector<int>(1), stream());
  EXPECT_SUCCESS(run(all_write_zero, 2, 1, 0, out.get()));
}

// A shuffle moves a register; it says nothing about memory.
__global__ void shuffle_as_barrier(int* out) {
  const int i = cuda::thread_index();
  const SharedArray<int> shared = shared_array<int>(0, 32);
  shared[i] = i;
  const int other = cuda::shfl_sync_bfly(i, 1);
  out[i] = shared[other];
}

TEST_F(Race, AShuffleTakenForABarrier) {
  const DeviceArray<int> out(std::vector<int>(32), stream());
  EXPECT_SUCCESS(run(shuffle_as_barrier, 1, 32, 128, out.get()));
}

// Both buffers, the wait and the barrier after it are there, the barrier before the copy is not.
__global__ void copy_over_what_is_read(const int* from, int* out) {
  const int i = cuda::thread_index();
  const SharedArray<int> shared = shared_array<int>(0, 128);
  cuda::cp_async_16(shared.address(4 * i), from + 4 * i, true);
  cuda::cp_async_commit_group();
  cuda::cp_async_wait_group<0>();
  cuda::sync_threads();
  out[i] = shared[(4 * i + 4) % 128];
  cuda::cp_async_16(shared.address(4 * i), from + 4 * i, true);
  cuda::cp_async_commit_group();
  cuda::cp_async_wait_group<0>();
}

TEST_F(Race, ACopyIntoMemoryThatOthersStillRead) {
  const DeviceArray<int> from(std::vector<int>(128), stream()), out(std::vector<int>(32), stream());
  EXPECT_SUCCESS(run(copy_over_what_is_read, 1, 32, 512, from.get(), out.get()));
}

__global__ void read_without_barrier_after_wait(const int* from, int* out) {
  const int i = cuda::thread_index();
  const SharedArray<int> shared = shared_array<int>(0, 128);
  cuda::cp_async_16(shared.address(4 * i), from + 4 * i, true);
  cuda::cp_async_commit_group();
  cuda::sync_threads();
  cuda::cp_async_wait_group<0>();
  out[i] = shared[(4 * i + 4) % 128];
}

TEST_F(Race, AWaitForOnesOwnCopiesTakenForOneForAll) {
  const DeviceArray<int> from(std::vector<int>(128), stream()), out(std::vector<int>(32), stream());
  EXPECT_SUCCESS(run(read_without_barrier_after_wait, 1, 32, 512, from.get(), out.get()));
}

}  // namespace
}  // namespace annulus::hosted
