// Stands in for the CUDA device in builds without it.
#include "kernels/device.h"
#include "kernels/error.h"

namespace annulus {
namespace {

[[noreturn]] void refuse() {
  throw EnvironmentError("runtime.device: this build of annulus has no CUDA device; use runtime.device=cpu");
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& /*options*/) {
  refuse();
}

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& /*options*/, MemoryPlan /*plan*/) {
  refuse();
}

int cuda_device_count() {
  return 0;
}

GpuMemory cuda_memory(int /*gpu*/) {
  refuse();
}

}  // namespace annulus
