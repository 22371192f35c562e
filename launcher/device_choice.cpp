#include "launcher/device_choice.h"

#include <fmt/format.h>

#include "kernels/error.h"
#include "parallel/staged_transport.h"
#include "parallel/transports.h"

namespace annulus {

DeviceKind choose_device(const Settings& settings) {
  if (settings.runtime.device != DeviceKind::automatic) return settings.runtime.device;
  return cuda_device_count() > 0 ? DeviceKind::cuda : DeviceKind::cpu;
}

int choose_gpu(const Settings& settings, int local_rank, int local_ranks) {
  const int gpus = cuda_device_count();
  if (gpus == 0) {
    throw EnvironmentError(
        "runtime.device is 'cuda', but this process finds no GPU (CUDA_VISIBLE_DEVICES, the driver, or "
        "a build without CUDA); use runtime.device=cpu");
  }
  if (local_ranks > gpus && settings.parallel.transport != TransportKind::mpi) {
    throw EnvironmentError(fmt::format(
        "{} ranks on this machine, but it has {} GPU{}, and NCCL wants one for each rank; start {} of them, "
        "or let them share with parallel.transport=mpi",
        local_ranks, gpus, gpus == 1 ? "" : "s", gpus));
  }
  return local_rank % gpus;
}

namespace {

bool messages_between_gpus(const Settings& settings, int ranks) {
  return settings.runtime.device == DeviceKind::cuda && ranks > 1;
}

}  // namespace

int choose_reserved_multiprocessors(const Settings& settings, int ranks) {
  const bool over_nccl = messages_between_gpus(settings, ranks) && settings.parallel.transport != TransportKind::mpi;
  return over_nccl ? nccl_multiprocessors : 0;
}

std::unique_ptr<Transport> make_device_transport(const Settings& settings, Transport& host, Device& device) {
  if (!messages_between_gpus(settings, host.size())) return nullptr;
  if (settings.parallel.transport == TransportKind::mpi) return std::make_unique<StagedTransport>(host, device);
  return make_nccl_transport(host);
}

}  // namespace annulus
