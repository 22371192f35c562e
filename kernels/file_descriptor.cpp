#include "kernels/file_descriptor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/error.h"

namespace annulus {

FileDescriptor::~FileDescriptor() {
  if (value_ >= 0) ::close(value_);
}

void throw_unwritable(const std::filesystem::path& path, int error) {
  const std::string failure = fmt::format("cannot write '{}': {}", path.string(), std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) throw MemoryError(failure + "; free some space or write elsewhere");
  if (error == EFBIG) throw MemoryError(failure + "; raise the limit on file sizes (ulimit -f) or write elsewhere");
  throw EnvironmentError(failure + "; check that its folder exists and may be written to");
}

}  // namespace annulus
