#include "launcher/budget.h"

#include <unistd.h>

#include <filesystem>

#include "kernels/device.h"
#include "kernels/error.h"
#include "kernels/narrow.h"
#include "runtime/run.h"

namespace annulus {
namespace {

int64_t machine_bytes() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
}

// Free in the nearest folder above that exists: the rest is made when the run starts.
int64_t free_bytes(std::filesystem::path directory) {
  std::error_code failure;
  directory = std::filesystem::absolute(directory, failure);
  while (!std::filesystem::exists(directory, failure) && directory.has_relative_path())
    directory = directory.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(directory, failure);
  return failure ? 0 : static_cast<int64_t>(space.available);
}

// Of the device: of the host's memory where that is the CPU, of this machine's first GPU otherwise.
int64_t device_bytes(const Settings& settings, int local_ranks) {
  if (settings.runtime.device != DeviceKind::cuda) return machine_bytes() / local_ranks;
  const int gpus = cuda_device_count();
  if (gpus == 0) {
    throw ConfigurationError(
        "runtime.memory_budget is auto, but there is no GPU here to ask for its memory; give it in "
        "bytes or GB, such as runtime.memory_budget=80GB");
  }
  return cuda_available_bytes(0) / ceil_divide(local_ranks, gpus);
}

}  // namespace

Budget budget_of(const Settings& settings, int local_ranks) {
  const RuntimeSettings& runtime = settings.runtime;
  const auto most = [](int64_t bytes) { return bytes / 10 * 9; };
  const auto share = [&](int64_t bytes) { return most(bytes) / local_ranks; };
  return {.memory = runtime.memory_budget > 0 ? runtime.memory_budget : most(device_bytes(settings, local_ranks)),
          .host = runtime.host_budget > 0 ? runtime.host_budget : share(machine_bytes()),
          .disk = runtime.disk_budget > 0 ? runtime.disk_budget : share(free_bytes(offload_directory(settings)))};
}

}  // namespace annulus
