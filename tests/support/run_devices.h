// What whole runs inside one process are tested on, a thread for each rank. The executable decides: with
// tests/support/cpu_runs.cpp the CPU, with tests/hosted_cuda/runtime/cuda_runs.cpp CUDA and NCCL on their double.
#pragma once

#include <functional>

#include "parallel/transport.h"
#include "runtime/run.h"

namespace annulus {

DeviceKind run_device();  // for settings.runtime.device
Place run_storage();      // where what leaves the device goes
bool device_is_slow();    // a double: less is tried on it

// Trains `settings` on `ranks` ranks, each on a device with the memory of its plan. What listens to rank 0 is
// `listener`.
void train_on(const Settings& settings, int ranks, Listener& listener);

// Calls `body` with the device of the calling rank and with how it reaches the others' devices.
void with_device(Transport& host, DeviceOptions options, MemoryPlan plan,
                 const std::function<void(Device&, Transport&)>& body);

}  // namespace annulus
