#include "tests/hosted_cuda/double/machine.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/hosted_cuda/double/order.h"
#include "tests/hosted_cuda/double/seed.h"
#include "tests/hosted_cuda/include/hosted_cuda/control.h"

namespace annulus::hosted {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int64_t synchronisations = 0;
thread_local int64_t blocks_of_thread = 0;

std::atomic<uint64_t>& shared_seed() {
  static std::atomic<uint64_t> seed = [] {
    const char* text = std::getenv("ANNULUS_HOSTED_SEED");
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  }();
  return seed;
}

template <class T>
void set(T Machine::*member, T value) {
  const Hidden hidden;
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  machine.*member = std::move(value);
}

}  // namespace

Machine& Machine::instance() {
  static auto* machine = new Machine;  // outlives the streams' threads
  return *machine;
}

uint64_t seed() {
  return shared_seed();
}
int current_device() {
  return device_of_thread;
}

cudaError_t fail(cudaError_t error, const std::string& why) {
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  machine.fault = why;
  return last_error = error;
}

void fail_for_good(cudaError_t error, const std::string& why) {
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  if (machine.sticky != cudaSuccess) return;
  machine.sticky = error;
  machine.fault = why;
  std::fprintf(stderr, "hosted CUDA: %s\n", why.c_str());
}

cudaError_t sticky() {
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  if (machine.sticky != cudaSuccess) last_error = machine.sticky;
  return machine.sticky;
}

cudaError_t locate(const void* address, size_t bytes, Range& range) {
  Machine& machine = Machine::instance();
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::string why;
  {
    const std::scoped_lock lock(machine.mutex);
    auto found = machine.memory.upper_bound(begin);
    if (found == machine.memory.begin()) return cudaSuccess;
    --found;
    const uintptr_t end = found->first + static_cast<uintptr_t>(found->second.bytes);
    if (begin >= end) return cudaSuccess;
    range = found->second;
    if (begin + bytes <= end) return cudaSuccess;
    why = std::to_string(bytes) + " bytes from byte " + std::to_string(begin - found->first) + " of an allocation of " +
          std::to_string(found->second.bytes);
  }
  return fail(cudaErrorInvalidValue, why);
}

void count_host_synchronisation() {
  ++synchronisations;
}
void count_launched_blocks(int64_t blocks) {
  blocks_of_thread += blocks;
}

void set_seed(uint64_t seed) {
  shared_seed() = seed;
}
void set_device_count(int count) {
  set(&Machine::device_count, count);
}
void set_device_memory(int64_t bytes) {
  set(&Machine::device_bytes, bytes);
}
void set_pinned_memory(int64_t bytes) {
  set(&Machine::pinned_bytes, bytes);
}
void set_compute_capability(int major) {
  set(&Machine::compute_capability_major, major);
}
void set_one_kernel_at_a_time(bool on) {
  set(&Machine::one_kernel_at_a_time, on);
}
void set_nccl_timeout(std::chrono::milliseconds timeout) {
  set(&Machine::nccl_timeout, timeout);
}
int64_t launched_blocks() {
  return blocks_of_thread;
}
int64_t host_synchronisations() {
  return synchronisations;
}

std::string last_fault() {
  const Hidden hidden;
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  return machine.fault;
}

void forget_faults() {
  set(&Machine::sticky, cudaSuccess);
  last_error = cudaSuccess;
}

}  // namespace annulus::hosted

using annulus::hosted::Hidden;
using annulus::hosted::Machine;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(annulus::hosted::last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return annulus::hosted::last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "an error the hosted device never gives";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "an error the hosted device never gives";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Hidden hidden;
  Machine& machine = Machine::instance();
  {
    const std::scoped_lock lock(machine.mutex);
    *count = machine.device_count;
  }
  return *count > 0 ? cudaSuccess : annulus::hosted::fail(cudaErrorNoDevice, "the machine has no device");
}

cudaError_t cudaGetDevice(int* device) {
  *device = annulus::hosted::current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return error;
  if (device < 0 || device >= count) {
    const Hidden hidden;
    return annulus::hosted::fail(cudaErrorInvalidDevice,
                                 "device " + std::to_string(device) + " of " + std::to_string(count));
  }
  annulus::hosted::device_of_thread = device;
  return cudaSuccess;
}

// Figures of an A100, but for the name and the number of multiprocessors.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: {
      const Hidden hidden;
      Machine& machine = Machine::instance();
      const std::scoped_lock lock(machine.mutex);
      *value = machine.compute_capability_major;
      return cudaSuccess;
    }
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 163 << 10;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = 164 << 10;
      return cudaSuccess;
    default: {
      const Hidden hidden;
      return annulus::hosted::fail(cudaErrorInvalidValue, "the hosted device does not know this attribute");
    }
  }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return error;
  const Hidden hidden;
  if (device < 0 || device >= count) return annulus::hosted::fail(cudaErrorInvalidDevice, "no such device");
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Hosted CUDA");
  cudaDeviceGetAttribute(&properties->major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&properties->minor, cudaDevAttrComputeCapabilityMinor, device);
  cudaDeviceGetAttribute(&properties->multiProcessorCount, cudaDevAttrMultiProcessorCount, device);
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 163 << 10;
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  properties->totalGlobalMem = static_cast<size_t>(machine.device_bytes);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
