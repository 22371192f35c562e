// The files that data.train names.
#pragma once

#include <filesystem>
#include <vector>

namespace annulus {

// `path` itself, or, where it is a folder, every regular file below it (hidden ones and links to files too, links to
// folders not) in the byte order of their paths. Throws DataError where there is none.
std::vector<std::filesystem::path> files_at(const std::filesystem::path& path);

}  // namespace annulus
