// What the double's own tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "hosted_cuda/control.h"
#include "kernels/cuda/ptx.cuh"
#include "tests/hosted_cuda/races.h"

namespace annulus::hosted {

#define EXPECT_SUCCESS(call) EXPECT_EQ(call, cudaSuccess) << last_fault()

// An array in device memory, filled and read over a stream.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const std::vector<T>& values, cudaStream_t stream) : count_(values.size()), stream_(stream) {
    EXPECT_SUCCESS(cudaMalloc(&data_, count_ * sizeof(T)));
    EXPECT_SUCCESS(cudaMemcpyAsync(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, stream));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    forget_faults();
    EXPECT_SUCCESS(cudaFree(data_));
  }

  [[nodiscard]] T* get() const { return static_cast<T*>(data_); }
  [[nodiscard]] size_t bytes() const { return count_ * sizeof(T); }

  [[nodiscard]] std::vector<T> download() const {
    std::vector<T> values(count_);
    EXPECT_SUCCESS(cudaMemcpyAsync(values.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream_));
    return values;
  }

 private:
  void* data_ = nullptr;
  size_t count_;
  cudaStream_t stream_;
};

// A device with a stream. Races that a test has not expected fail it.
class HostedCuda : public testing::Test {
 protected:
  HostedCuda() : races_before_(reported_races()) {
    EXPECT_SUCCESS(cudaSetDevice(0));
    stream_ = new_stream();
  }
  ~HostedCuda() override {
    forget_faults();
    set_seed(0);
    for (cudaStream_t stream : streams_) {
      EXPECT_SUCCESS(cudaStreamSynchronize(stream));
      EXPECT_SUCCESS(cudaStreamDestroy(stream));
    }
    EXPECT_EQ(races() > 0, race_expected_) << races() << " races were reported";
  }

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    EXPECT_SUCCESS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    streams_.push_back(stream);
    return stream;
  }

  void expect_race() { race_expected_ = true; }
  [[nodiscard]] int races() const { return reported_races() - races_before_; }

  // Launches on `stream`; arguments are those of the kernel.
  template <class Kernel, class... Arguments>
  static cudaError_t start(cudaStream_t stream, Kernel kernel, unsigned blocks, unsigned threads, size_t shared_bytes,
                           Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
  }

  // Launches and waits; the error of either.
  template <class Kernel, class... Arguments>
  cudaError_t run(Kernel kernel, unsigned blocks, unsigned threads, size_t shared_bytes, Arguments... arguments) {
    const cudaError_t error = start(stream_, kernel, blocks, threads, shared_bytes, arguments...);
    return error == cudaSuccess ? cudaStreamSynchronize(stream_) : error;
  }

 private:
  std::vector<cudaStream_t> streams_;
  cudaStream_t stream_ = nullptr;
  int races_before_;
  bool race_expected_ = false;
};

#define EXPECT_FAULT(call, text)                                           \
  do {                                                                     \
    EXPECT_EQ(call, cudaErrorLaunchFailure);                               \
    EXPECT_NE(last_fault().find(text), std::string::npos) << last_fault(); \
  } while (false)

}  // namespace annulus::hosted
