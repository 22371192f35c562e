#include "hosted_cuda/control.h"
#include "parallel/transports.h"
#include "tests/support/ranks.h"

namespace annulus {

std::unique_ptr<Device> make_shared_device() {
  return make_cuda_device({.gpu = 0, .poison = true});
}

void run_ranks(int ranks, const std::function<void(Device&, Transport&)>& body) {
  hosted::set_device_count(8);
  run_as_threads(ranks, [&](Transport& host) {
    const auto device = make_cuda_device({.gpu = host.rank(), .poison = true});
    const auto transport = make_nccl_transport(host);
    body(*device, *transport);
  });
}

}  // namespace annulus
