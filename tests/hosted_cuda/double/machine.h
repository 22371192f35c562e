// The hosted machine: its devices, its memory, and what has gone wrong. Everything is called under Hidden.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace annulus::hosted {

enum class Place : uint8_t { device, pinned, pageable };

struct Range {
  int64_t bytes = 0;
  Place place = Place::pageable;
  int device = 0;
};

struct Device {
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  int64_t used_bytes = 0;
  int streams_created = 0;
  uint64_t launched = 0, finished = 0;  // kernels, where one runs at a time
};

// What all threads share; `mutex` guards all of it.
struct Machine {
  std::mutex mutex;
  std::condition_variable kernel_finished;
  std::map<int, Device> devices;
  std::map<uintptr_t, Range> memory;                // by its first address
  std::map<const void*, int> dynamic_shared_bytes;  // allowed to a kernel
  cudaError_t sticky = cudaSuccess;
  std::string fault;

  int device_count = 4;
  int64_t device_bytes = int64_t{16} << 30;
  int64_t pinned_bytes = int64_t{64} << 30, pinned_used_bytes = 0;
  int compute_capability_major = 8;
  bool one_kernel_at_a_time = false;
  std::chrono::milliseconds nccl_timeout{20000};

  static Machine& instance();
};

int current_device();

// Remembers why a call of this thread fails, and with what.
cudaError_t fail(cudaError_t error, const std::string& why);

// A kernel went wrong: every later call fails.
void fail_for_good(cudaError_t error, const std::string& why);

// The error that sticks, if one does.
cudaError_t sticky();

// Where [address, address + bytes) lies; an error if it leaves the allocation it begins in.
cudaError_t locate(const void* address, size_t bytes, Range& range);

void count_host_synchronisation();
void count_launched_blocks(int64_t blocks);

}  // namespace annulus::hosted
