#include "runtime/data/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "kernels/error.h"

namespace annulus {

namespace {

namespace fs = std::filesystem;

void check(const std::error_code& error, const fs::path& path) {
  if (error) throw DataError(fmt::format("cannot read '{}': {}", path.string(), error.message()));
}

}  // namespace

std::vector<fs::path> files_at(const fs::path& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  check(error, path);
  if (!folder) return {path};

  std::vector<std::string> files;
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code status_error;
    const fs::file_type type = entry->status(status_error).type();
    if (type == fs::file_type::none) check(status_error, entry->path());
    if (type == fs::file_type::regular) files.push_back(entry->path().generic_string());
  }
  check(error, path);
  if (files.empty()) {
    throw DataError(fmt::format("data.train '{}' holds no token: there is no file below it", path.string()));
  }
  std::ranges::sort(files);  // all begin with the folder, and strings compare as unsigned bytes
  return {files.begin(), files.end()};
}

}  // namespace annulus
