#include "launcher/output_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "kernels/error.h"

namespace annulus {

OutputLock::OutputLock(const std::filesystem::path& directory, int rank) {
  if (rank != 0) return;
  descriptor_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw EnvironmentError(fmt::format(
      "output.directory: another run is writing to '{}'; wait for it, or choose another one", directory.string()));
}

OutputLock::~OutputLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace annulus
