// How much memory the processes of this job may take together.
#pragma once

#include <cstdint>
#include <filesystem>

namespace annulus {

// Bytes: the machine's memory, or the limit of the control group this process is in (a container's, a batch job's),
// where that is less. `root`: where the system's files are.
int64_t machine_memory(const std::filesystem::path& root = "/");

}  // namespace annulus
