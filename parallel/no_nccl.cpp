// Stands in for NCCL in builds without CUDA.
#include "kernels/error.h"
#include "parallel/transports.h"

namespace annulus {

std::unique_ptr<Transport> make_nccl_transport(Transport& /*host*/) {
  throw EnvironmentError(
      "this build of annulus has no NCCL, over which GPUs exchange messages; use runtime.device=cpu");
}

}  // namespace annulus
