// The CPU's ways to be set up: 1, 2 and 3 threads, with every instruction set this machine has.
#include "tests/kernels/devices.h"

#include "kernels/cpu/device.h"

namespace annulus::testing {

std::vector<DeviceSetup> device_setups() {
  std::vector<DeviceSetup> setups;
  for (const cpu::Isa isa : {cpu::Isa::v2, cpu::Isa::v3, cpu::Isa::v4}) {
    if (!cpu::has(isa)) continue;
    for (const int threads : {1, 2, 3}) {
      setups.push_back(
          {std::string("CPU, ") + cpu::name_of(isa) + ", " + std::to_string(threads) + " threads",
           [=] { return std::make_unique<cpu::CpuDevice>(DeviceOptions{.threads = threads, .poison = true}, isa); }});
    }
  }
  return setups;
}

std::unique_ptr<Device> make_test_device() {
  return make_cpu_device({.threads = 2, .poison = true});
}

std::unique_ptr<Device> make_planned_device(MemoryPlan plan, bool poison) {
  return make_cpu_device({.threads = 1, .poison = poison}, std::move(plan));
}

}  // namespace annulus::testing
