// Kernels and calls that break a rule: the error each comes to.
#include "tests/hosted_cuda/fixture.h"

namespace annulus::hosted {
namespace {

using cuda::shared_array;

__global__ void nothing() {}

TEST_F(HostedCuda, RefusesLaunchesThatAreTooLarge) {
  EXPECT_EQ(run(nothing, 1, 257, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(nothing, 0, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(nothing, 1, 32, (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_NE(last_fault().find("49153 bytes of shared memory"), std::string::npos) << last_fault();
  const auto* address = reinterpret_cast<const void*>(&nothing);
  EXPECT_SUCCESS(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  EXPECT_SUCCESS(run(nothing, 1, 32, 100 << 10));
  EXPECT_EQ(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize, 164 << 10),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(HostedCuda, RefusesStreamsThatDoNotExistAndTheDefaultStream) {
  EXPECT_EQ(start(nullptr, nothing, 1, 32, 0), cudaErrorInvalidResourceHandle);
  EXPECT_NE(last_fault().find("default stream"), std::string::npos) << last_fault();
  cudaStream_t gone = nullptr;
  EXPECT_SUCCESS(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
  EXPECT_SUCCESS(cudaStreamDestroy(gone));
  EXPECT_EQ(start(gone, nothing, 1, 32, 0), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(gone), cudaErrorInvalidResourceHandle);
}

TEST_F(HostedCuda, RefusesAStreamOfAnotherDevice) {
  EXPECT_SUCCESS(cudaSetDevice(1));
  EXPECT_EQ(start(stream(), nothing, 1, 32, 0), cudaErrorInvalidResourceHandle);
  EXPECT_NE(last_fault().find("a stream of device 0"), std::string::npos) << last_fault();
  EXPECT_SUCCESS(cudaSetDevice(0));
  EXPECT_EQ(cudaSetDevice(4), cudaErrorInvalidDevice);
}

TEST_F(HostedCuda, KeepsCopiesInsideTheirAllocations) {
  const DeviceArray<int> data({1, 2, 3, 4}, stream());
  int host[5] = {};
  EXPECT_EQ(cudaMemcpyAsync(host, data.get(), 20, cudaMemcpyDeviceToHost, stream()), cudaErrorInvalidValue);
  EXPECT_NE(last_fault().find("20 bytes from byte 0 of an allocation of 16"), std::string::npos) << last_fault();
  EXPECT_EQ(cudaMemsetAsync(data.get() + 2, 0, 12, stream()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host, 0, 4, stream()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host, data.get(), 4, cudaMemcpyHostToDevice, stream()), cudaErrorInvalidValue);
}

TEST_F(HostedCuda, HasAsMuchMemoryAsItIsGiven) {
  set_device_memory(1 << 20);
  void *first = nullptr, *second = nullptr;
  EXPECT_SUCCESS(cudaMalloc(&first, 600 << 10));
  EXPECT_EQ(cudaMalloc(&second, 600 << 10), cudaErrorMemoryAllocation);
  size_t free_bytes = 0, all_bytes = 0;
  EXPECT_SUCCESS(cudaMemGetInfo(&free_bytes, &all_bytes));
  EXPECT_EQ(free_bytes, 424U << 10);
  EXPECT_EQ(all_bytes, 1U << 20);
  EXPECT_SUCCESS(cudaFree(first));
  EXPECT_EQ(cudaFree(first), cudaErrorInvalidValue);
  set_device_memory(int64_t{16} << 30);
}

__global__ void return_before_barrier() {
  if (cuda::thread_index() == 5) return;
  cuda::sync_threads();
}

__global__ void half_a_warp_shuffles(int* out) {
  if (cuda::thread_index() < 16) {
    out[cuda::thread_index()] = cuda::shfl_sync_bfly(1, 1);
  } else {
    cuda::sync_threads();
  }
}

__global__ void two_instructions(int* out) {
  if (cuda::thread_index() < 16) {
    out[cuda::thread_index()] = cuda::shfl_sync_bfly(1, 1);
  } else {
    cuda::sync_warp();
  }
}

__global__ void shuffle_of_a_part(int* out) {
  out[cuda::thread_index()] = cuda::shfl_sync_bfly(1, 1);
}

TEST_F(HostedCuda, SaysWhichBarrierIsBroken) {
  const DeviceArray<int> out(std::vector<int>(64), stream());
  EXPECT_FAULT(run(return_before_barrier, 1, 64, 0), "thread 5 returns while others wait at a barrier");
  forget_faults();
  EXPECT_FAULT(run(half_a_warp_shuffles, 1, 32, 0, out.get()),
               "16 of 32 threads wait at a barrier, 16 lanes of warp 0");
  forget_faults();
  EXPECT_FAULT(run(two_instructions, 1, 32, 0, out.get()), "in different instructions");
  forget_faults();
  EXPECT_FAULT(run(shuffle_of_a_part, 1, 40, 0, out.get()), "a warp that is not whole");
}

__global__ void write_shared(int element, int size) {
  shared_array<float>(0, size)[element] = 1;
}
__global__ void misalign() {
  shared_array<float>(2, 1)[0] = 1;
}
__global__ void load_misaligned() {
  uint32_t registers[4];
  cuda::ldmatrix_x4(registers, shared_array<uint16_t>(0, 64).address(4));
}
__global__ void copy_from_misaligned(const char* from) {
  cuda::cp_async_16(shared_array<char>(0, 16).address(0), from + 4, true);
}

TEST_F(HostedCuda, KeepsKernelsInsideSharedMemory) {
  EXPECT_FAULT(run(write_shared, 2, 1, 64, 16, 16), "block 0: element 16 of a shared array of 16 (thread 0)");
  forget_faults();
  EXPECT_FAULT(run(write_shared, 1, 1, 64, 0, 17), "bytes 0 to 68 of shared memory are asked for, the launch gave 64");
  forget_faults();
  EXPECT_FAULT(run(misalign, 1, 1, 64), "not aligned");
  forget_faults();
  EXPECT_FAULT(run(load_misaligned, 1, 32, 128), "ldmatrix at an address that is no multiple of 16");
  forget_faults();
  const DeviceArray<char> from(std::vector<char>(32), stream());
  EXPECT_FAULT(run(copy_from_misaligned, 1, 1, 16, from.get()), "cp.async from an address");
}

// AddressSanitizer would end the process at the write itself.
#ifndef __SANITIZE_ADDRESS__
__global__ void write_past_shared() {
  *reinterpret_cast<int4*>(shared_array<float>(0, 6).address(4)) = {};
}

TEST_F(HostedCuda, NoticesWritesBesideSharedMemory) {
  EXPECT_FAULT(run(write_past_shared, 1, 1, 24), "memory beside the 24 bytes of shared memory was written");
}
#endif

__global__ void keep(float* out) {
  out[cuda::block_index()] = shared_array<float>(0, 4)[1];
  shared_array<float>(0, 4)[1] = 1;
}

TEST_F(HostedCuda, LeavesNothingInSharedMemoryForTheNextBlock) {
  const DeviceArray<float> out(std::vector<float>(9), stream());
  EXPECT_SUCCESS(run(keep, 9, 1, 16, out.get()));
  for (const float number : out.download()) EXPECT_NE(number, number);
}

TEST_F(HostedCuda, AFailedKernelMakesEveryLaterCallFail) {
  EXPECT_FAULT(run(write_shared, 1, 1, 64, 16, 16), "element 16");
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorLaunchFailure);
  EXPECT_EQ(run(nothing, 1, 1, 0), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorLaunchFailure);
  EXPECT_STREQ(cudaGetErrorName(cudaPeekAtLastError()), "cudaErrorLaunchFailure");
}

}  // namespace
}  // namespace annulus::hosted
