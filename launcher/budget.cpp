#include "launcher/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "kernels/device.h"
#include "kernels/error.h"
#include "kernels/narrow.h"
#include "launcher/machine_memory.h"
#include "runtime/outside.h"
#include "runtime/run.h"

namespace annulus {
namespace {

// Free in the nearest folder above that exists: the rest is made when the run starts.
int64_t free_bytes(std::filesystem::path directory) {
  std::error_code failure;
  directory = std::filesystem::absolute(directory, failure);
  while (!std::filesystem::exists(directory, failure) && directory.has_relative_path())
    directory = directory.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(directory, failure);
  return failure ? 0 : static_cast<int64_t>(space.available);
}

// Ranks that share a GPU share what it has free, each with a context of its own.
int64_t gpu_bytes(const Settings& settings, int ranks, int local_ranks, int gpu) {
  const int gpus = cuda_device_count();
  if (gpus == 0) {
    throw ConfigurationError(
        "runtime.memory_budget is auto, but there is no GPU here to ask for its memory; give it in "
        "bytes or GB, such as runtime.memory_budget=80GB");
  }
  const int64_t share = cuda_memory(gpu).available / ceil_divide(local_ranks, gpus);
  return std::max<int64_t>(0, share - outside_on_gpu(settings, ranks).bytes);
}

}  // namespace

Budget budget_of(const Settings& settings, int ranks, int local_ranks, int gpu) {
  const RuntimeSettings& runtime = settings.runtime;
  const auto share = [&](int64_t bytes) { return bytes / 10 * 9 / local_ranks; };
  const auto memory = [&] {
    return runtime.device == DeviceKind::cuda ? gpu_bytes(settings, ranks, local_ranks, gpu) : share(machine_memory());
  };
  return {.memory = runtime.memory_budget > 0 ? runtime.memory_budget : memory(),
          .host = runtime.host_budget > 0 ? runtime.host_budget : share(machine_memory()),
          .disk = runtime.disk_budget > 0 ? runtime.disk_budget : share(free_bytes(offload_directory(settings)))};
}

void check_machine(const RankPlan& plan, const PreparedRun& run, int local_ranks) {
  const bool on_gpu = run.settings.runtime.device == DeviceKind::cuda;
  const int64_t taken = on_gpu ? plan.memory.stored.host : plan.memory.extent + outside_of(run).bytes;
  const int64_t there = machine_memory();
  if (taken <= there / local_ranks) return;
  throw MemoryError(fmt::format(
      "this run takes {} bytes of this machine's memory on each of {} ranks, but only {} are there for all of them "
      "together; {} may not promise more than there is: without it, what fits is chosen",
      taken, local_ranks, there, on_gpu ? "runtime.host_budget" : "runtime.memory_budget"));
}

}  // namespace annulus
