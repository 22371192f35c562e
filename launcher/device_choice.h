// Which device a rank computes on, and how it reaches the others' devices.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "parallel/transport.h"
#include "runtime/settings.h"

namespace annulus {

// runtime.device, with `auto` made the GPU where this process may use one, and otherwise the CPU.
DeviceKind choose_device(const Settings& settings);

// The GPU of a rank that is number `local_rank` of `local_ranks` on its machine. EnvironmentError where ranks would
// have to share one, unless parallel.transport is mpi, over which they can.
int choose_gpu(const Settings& settings, int local_rank, int local_ranks);

// How many multiprocessors of a GPU attention leaves to the messages of a run of `ranks` ranks: nccl_multiprocessors,
// and 0 where NCCL carries none.
int choose_reserved_multiprocessors(const Settings& settings, int ranks);

// What carries messages between the devices of the ranks that `host` connects; nothing where that is `host` itself.
std::unique_ptr<Transport> make_device_transport(const Settings& settings, Transport& host, Device& device);

}  // namespace annulus
