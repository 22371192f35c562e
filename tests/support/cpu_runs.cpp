#include "tests/support/run_devices.h"

namespace annulus {

DeviceKind run_device() {
  return DeviceKind::cpu;
}

Place run_storage() {
  return Place::disk;
}

bool device_is_slow() {
  return false;
}

void with_device(Transport& host, DeviceOptions options, MemoryPlan plan,
                 const std::function<void(Device&, Transport&)>& body) {
  const auto device = make_cpu_device(options, std::move(plan));
  body(*device, host);
}

}  // namespace annulus
