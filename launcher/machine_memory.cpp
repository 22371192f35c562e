#include "launcher/machine_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace annulus {
namespace {

namespace fs = std::filesystem;

constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();

// A file of one number, which may be missing or say "max".
int64_t limit_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  stream >> text;
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && bytes > 0 ? bytes : unlimited;
}

// The least of the limits of a group and those it lies in. In a container the group's own path may not be there, but
// its root is the container's.
int64_t limit_of_group(const fs::path& mount, std::string_view group, const char* file) {
  int64_t least = limit_in(mount / file);
  fs::path folder = mount;
  for (const fs::path& name : fs::path(group).relative_path()) {
    folder /= name;
    least = std::min(least, limit_in(folder / file));
  }
  return least;
}

}  // namespace

// Lines "number:controllers:path": version 2 has one without controllers, version 1 one for each set of them
// (cgroups(7), "/proc files").
int64_t machine_memory(const fs::path& root) {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::string_view text = line;
    const size_t first = text.find(':'), second = text.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers = fmt::format(",{},", text.substr(first + 1, second - first - 1));
    const std::string_view group = text.substr(second + 1);
    if (controllers == ",,") bytes = std::min(bytes, limit_of_group(mount, group, "memory.max"));
    if (controllers.find(",memory,") != std::string::npos) {
      bytes = std::min(bytes, limit_of_group(mount / "memory", group, "memory.limit_in_bytes"));
    }
  }
  return bytes;
}

}  // namespace annulus
