#include "runtime/files/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/error.h"
#include "kernels/narrow.h"

namespace annulus {

namespace {

constexpr int64_t largest_text = int64_t{64} << 20;  // bytes

[[noreturn]] void throw_unreadable(const std::filesystem::path& path, const std::string& reason) {
  throw DataError(fmt::format("cannot read '{}': {}", path.string(), reason));
}

// What a failed system call says about writing `path`.
[[noreturn]] void throw_unwritable(const std::filesystem::path& path, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    throw MemoryError(
        fmt::format("cannot write '{}': {}; free some space or write elsewhere", path.string(), std::strerror(error)));
  }
  throw EnvironmentError(fmt::format("cannot write '{}': {}; check that its folder exists and may be written to",
                                     path.string(), std::strerror(error)));
}

// A rename is only certain to survive a power cut once its folder has been synced too.
void sync_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw_unwritable(file, errno);
  // EINVAL: this file system keeps its folders in order by itself and has nothing to sync (POSIX, fsync).
  const int error = ::fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
  ::close(descriptor);
  if (error != 0) throw_unwritable(file, error);
}

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // Without O_NONBLOCK opening a named pipe would wait for a writer instead of being refused below.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw_unreadable(path_, std::strerror(errno));
  struct stat status {};
  const int failed = ::fstat(descriptor_, &status);
  if (failed != 0 || !S_ISREG(status.st_mode)) {
    const int error = errno;
    ::close(descriptor_);
    throw_unreadable(path_, failed != 0 ? std::strerror(error) : "it is not a regular file");
  }
  size_ = status.st_size;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(int64_t offset, std::span<std::byte> destination) const {
  require(offset >= 0, "a file is read from its beginning on");
  while (!destination.empty()) {
    const ssize_t count = ::pread(descriptor_, destination.data(), destination.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_unreadable(path_, std::strerror(errno));
    if (count == 0) {
      throw_unreadable(path_, fmt::format("it ends at byte {}, {} bytes early; it was cut off, or changed while in use",
                                          offset, destination.size()));
    }
    destination = destination.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)), beside_(path_) {
  beside_ += ".partial";
  descriptor_ = ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_unwritable(path_, errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!beside_.empty()) ::unlink(beside_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  require(descriptor_ >= 0, "a committed file is not written to");
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_unwritable(path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void OutputFile::commit() {
  require(descriptor_ >= 0, "a file is committed once");
  if (::fsync(descriptor_) != 0) throw_unwritable(path_, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) throw_unwritable(path_, errno);
  if (::rename(beside_.c_str(), path_.c_str()) != 0) throw_unwritable(path_, errno);
  beside_.clear();
  sync_folder(path_);
}

std::string read_text(const std::filesystem::path& path) {
  const InputFile file(path);
  if (file.size() > largest_text) {
    throw_unreadable(path, fmt::format("it has {} bytes where a text of at most {} is expected; is it the right file?",
                                       file.size(), largest_text));
  }
  std::string text(narrow<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace annulus
