#include "hosted_cuda/control.h"
#include "parallel/transports.h"
#include "tests/support/run_devices.h"

namespace annulus {

DeviceKind run_device() {
  return DeviceKind::cuda;
}

Place run_storage() {
  return Place::host;
}

bool device_is_slow() {
  return true;
}

void with_device(Transport& host, DeviceOptions options, MemoryPlan plan,
                 const std::function<void(Device&, Transport&)>& body) {
  hosted::set_device_count(8);
  const auto device = make_cuda_device(options, std::move(plan));
  const auto transport = make_nccl_transport(host);
  body(*device, *transport);
}

}  // namespace annulus
