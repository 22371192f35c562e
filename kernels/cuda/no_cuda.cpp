// Stands in for the CUDA device in builds without it.
#include "kernels/device.h"
#include "kernels/error.h"

namespace annulus {

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& /*options*/, MemoryPlan /*plan*/) {
  throw EnvironmentError("runtime.device: this build of annulus has no CUDA device; use runtime.device=cpu");
}

}  // namespace annulus
