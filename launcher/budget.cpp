#include "launcher/budget.h"

#include <unistd.h>

#include <filesystem>

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

}  // namespace

Budget budget_of(const Settings& settings, int local_ranks) {
  const RuntimeSettings& runtime = settings.runtime;
  const auto share = [&](int64_t bytes) { return bytes / 10 * 9 / local_ranks; };
  return {.memory = runtime.memory_budget > 0 ? runtime.memory_budget : share(machine_bytes()),
          .host = runtime.host_budget > 0 ? runtime.host_budget : share(machine_bytes()),
          .disk = runtime.disk_budget > 0 ? runtime.disk_budget : share(free_bytes(offload_directory(settings)))};
}

}  // namespace annulus
