// Device and pinned memory. Each allocation is one of the process's, so that the sanitizers guard its ends; new device
// memory holds NaN.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/hosted_cuda/double/machine.h"
#include "tests/hosted_cuda/double/order.h"

namespace annulus::hosted {
namespace {

constexpr size_t alignment = 256;  // as cudaMalloc promises

int64_t& used_bytes(Machine& machine, Place place, int device) {
  return place == Place::device ? machine.devices[device].used_bytes : machine.pinned_used_bytes;
}

cudaError_t allocate(void** pointer, size_t bytes, Place place) {
  const Hidden hidden;
  if (const cudaError_t error = sticky(); error != cudaSuccess) return error;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  Machine& machine = Machine::instance();
  const auto size = static_cast<int64_t>(bytes);
  {
    const std::scoped_lock lock(machine.mutex);
    int64_t& used = used_bytes(machine, place, current_device());
    if (used + size <= (place == Place::device ? machine.device_bytes : machine.pinned_bytes)) {
      *pointer = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    }
    if (*pointer != nullptr) {
      machine.memory[reinterpret_cast<uintptr_t>(*pointer)] = {size, place, current_device()};
      used += size;
    }
  }
  if (*pointer == nullptr) return fail(cudaErrorMemoryAllocation, std::to_string(bytes) + " bytes do not fit");
  if (place == Place::device) std::memset(*pointer, 0xFF, bytes);
  return cudaSuccess;
}

cudaError_t release_memory(void* pointer, Place place) {
  if (pointer == nullptr) return cudaSuccess;
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) return error;
  const Hidden hidden;
  Machine& machine = Machine::instance();
  {
    const std::scoped_lock lock(machine.mutex);
    const auto found = machine.memory.find(reinterpret_cast<uintptr_t>(pointer));
    if (found != machine.memory.end() && found->second.place == place) {
      used_bytes(machine, place, found->second.device) -= found->second.bytes;
      machine.memory.erase(found);
      const Shown shown;  // a use that is not before this is a race
      std::free(pointer);
      return cudaSuccess;
    }
  }
  return fail(cudaErrorInvalidValue, "what is freed was never allocated, or by another call");
}

}  // namespace
}  // namespace annulus::hosted

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return annulus::hosted::allocate(pointer, bytes, annulus::hosted::Place::device);
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned /*flags*/) {
  return annulus::hosted::allocate(pointer, bytes, annulus::hosted::Place::pinned);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

// Both wait for the device, as CUDA's do.
cudaError_t cudaFree(void* pointer) {
  return annulus::hosted::release_memory(pointer, annulus::hosted::Place::device);
}

cudaError_t cudaFreeHost(void* pointer) {
  return annulus::hosted::release_memory(pointer, annulus::hosted::Place::pinned);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  using namespace annulus::hosted;
  const Hidden hidden;
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  *total_bytes = static_cast<size_t>(machine.device_bytes);
  *free_bytes = static_cast<size_t>(machine.device_bytes - machine.devices[current_device()].used_bytes);
  return cudaSuccess;
}

}  // extern "C"
