// How the CUDA device fails: without a GPU, without memory, and after a kernel that went wrong.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "hosted_cuda/control.h"
#include "hosted_cuda/kernel.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/stream.h"
#include "tests/kernels/devices.h"
#include "tests/support/temporary_directory.h"

namespace annulus::testing {
namespace {

class CudaDeviceErrors : public ::testing::Test {
 protected:
  ~CudaDeviceErrors() override {
    hosted::forget_faults();
    hosted::set_device_count(4);
    hosted::set_pinned_memory(int64_t{64} << 30);
    hosted::set_compute_capability(8);
    hosted::set_device_memory(int64_t{16} << 30);
  }
};

TEST_F(CudaDeviceErrors, NoGpuIsNoneAndCannotBeUsed) {
  hosted::set_device_count(0);
  EXPECT_EQ(cuda_device_count(), 0);
  expect_says(message_of<EnvironmentError>([] { make_cuda_device({}); }),
              {"no CUDA-capable device", "cudaErrorNoDevice", "device.cpp:"});
  expect_says(message_of<EnvironmentError>([] { cuda_memory(0); }), {"cudaErrorNoDevice"});
}

TEST_F(CudaDeviceErrors, MoreRanksThanGpusAreToldWhatToDo) {
  hosted::set_device_count(2);
  expect_says(message_of<EnvironmentError>([] { make_cuda_device({.gpu = 2}); }),
              {"no GPU 2 among the 2", "at most as many ranks", "runtime.device=cpu"});
}

TEST_F(CudaDeviceErrors, AGpuThatIsTooOldIsRefused) {
  hosted::set_compute_capability(7);
  expect_says(message_of<EnvironmentError>([] { make_cuda_device({.gpu = 1}); }),
              {"GPU 1 has compute capability 7.x", "8.0 (A100)", "runtime.device=cpu"});
}

TEST_F(CudaDeviceErrors, WhatIsAvailableIsWhatNobodyHasTaken) {
  const int64_t before = cuda_memory(1).available;
  const std::unique_ptr<Device> device = make_cuda_device({.gpu = 1});
  const Tensor tensor = device->allocate({1024}, DType::float32, Purpose::mlp);
  EXPECT_EQ(cuda_memory(1).available, before - 4096);
}

TEST_F(CudaDeviceErrors, AnArenaThatDoesNotFitIsRefused) {
  MemoryPlan plan;
  plan.extent = 3 << 20;
  hosted::set_device_memory(2 << 20);
  expect_says(message_of<MemoryError>([&] { make_cuda_device({}, plan); }),
              {"3145728 bytes", "its arena", "more ranks"});
}

TEST_F(CudaDeviceErrors, HostMemoryThatDoesNotFitIsRefused) {
  MemoryPlan plan;
  plan.stored.host = 64 << 20;
  hosted::set_pinned_memory(100 << 20);  // the ring of uploads takes 64 MiB
  expect_says(message_of<MemoryError>([&] { make_cuda_device({}, plan); }),
              {"67108864 bytes of pinned memory", "memory.offload_*"});
}

TEST_F(CudaDeviceErrors, ARingThatDoesNotFitIsRefused) {
  hosted::set_pinned_memory(1 << 20);
  expect_says(message_of<MemoryError>([] { make_cuda_device({}); }),
              {"CUDA: out of memory (cudaErrorMemoryAllocation) in cudaMallocHost", "staging.cpp:"});
}

__global__ void reads_outside_its_array() {
  hosted::outside_shared_array(7, 4);
}

// A device with everything that can be planned, whose kernel has gone wrong.
class AfterAFault : public CudaDeviceErrors {
 protected:
  AfterAFault() {
    MemoryPlan plan;
    plan.stored = {.host = 4096, .disk = 4096};
    plan.sections[static_cast<size_t>(Section::setup)] = {{.bytes = 4096, .purpose = Purpose::mlp}};
    plan.workspace.bytes = 64 << 20;
    place(plan);
    device_ = make_cuda_device({.offload_directory = folder_.path()}, std::move(plan));
    block_ = device_->allocate({1024}, DType::float32, Purpose::mlp);
    for (const Place place : {Place::host, Place::disk}) device_->storage(place).reserve(4096);
    cuda::launch(reads_outside_its_array, 1, 32, 0, cuda::cuda_stream(device_->compute_stream()));
    cudaDeviceSynchronize();
  }

  static void expect_failure(const std::function<void()>& action, const std::string& file) {
    expect_says(message_of<EnvironmentError>(action),
                {"CUDA: unspecified launch failure (cudaErrorLaunchFailure) in ", file + ":"});
  }

  const TemporaryDirectory folder_;
  std::unique_ptr<Device> device_;
  Tensor block_;
};

TEST_F(AfterAFault, EveryCallSaysSo) {
  const Stream stream = device_->compute_stream();
  const View all = block_, half = all.slice(0, 512), other_half = all.slice(512, 1024);
  std::vector<float> numbers(1024);
  expect_failure([&] { device_->upload(all, numbers.data(), stream); }, "staging.cpp");
  expect_failure([&] { device_->download(numbers.data(), all, stream); }, "staging.cpp");
  expect_failure([&] { device_->fill_zero(all, stream); }, "device.cpp");
  expect_failure([&] { device_->accumulate(half, other_half, stream); }, "launch.cuh");
  for (const Place place : {Place::host, Place::disk}) {
    expect_failure([&] { device_->storage(place).store(0, all, stream); }, "stream.h");
  }
  expect_failure([] { make_cuda_device({}); }, "stream.h");
  const View matrix = half.slice(0, 64).reshaped({8, 8});
  expect_says(message_of<EnvironmentError>([&] {
                device_->matmul({.c = matrix,
                                 .a = other_half.slice(0, 64).reshaped({8, 8}),
                                 .b = other_half.slice(64, 128).reshaped({8, 8})},
                                stream);
              }),
              {"cuBLASLt: CUBLAS_STATUS_EXECUTION_FAILED in cublasLtMatmul", "matmul.cpp:"});
}

}  // namespace
}  // namespace annulus::testing
