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

FileDescriptor open_to_write(const std::filesystem::path& path, const std::filesystem::path& named) {
  FileDescriptor descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (descriptor.get() < 0) throw_unwritable(named, errno);
  return descriptor;
}

// All of it, or throws.
void write_all(const FileDescriptor& descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_unwritable(path, errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

// A rename is only certain to survive a power cut once its folder has been synced too.
void sync_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: this file system keeps its folders in order by itself and has nothing to sync (POSIX, fsync).
  if (descriptor.get() < 0 || (::fsync(descriptor.get()) != 0 && errno != EINVAL)) throw_unwritable(file, errno);
}

}  // namespace

// Without O_NONBLOCK opening a named pipe would wait for a writer instead of being refused below.
InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (descriptor_.get() < 0 || ::fstat(descriptor_.get(), &status) != 0) throw_unreadable(path_, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw_unreadable(path_, "it is not a regular file");
  size_ = status.st_size;
}

void InputFile::read(int64_t offset, std::span<std::byte> destination) const {
  require(offset >= 0, "a file is read from its beginning on");
  while (!destination.empty()) {
    const ssize_t count = ::pread(descriptor_.get(), destination.data(), destination.size(), offset);
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

void InputFile::require_size(int64_t bytes) const {
  if (size_ == bytes) return;
  throw DataError(fmt::format("'{}' had {} bytes when training began and has {} now; leave it alone until the end",
                              path_.string(), bytes, size_));
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)), beside_(path_) {
  beside_ += ".partial";
  descriptor_ = open_to_write(beside_, path_);
}

OutputFile::~OutputFile() {
  if (!beside_.empty()) ::unlink(beside_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  require(descriptor_.get() >= 0, "a finished file is not written to");
  write_all(descriptor_, bytes, path_);
}

void OutputFile::finish() {
  require(descriptor_.get() >= 0, "a file is finished once");
  if (::fsync(descriptor_.get()) != 0) throw_unwritable(path_, errno);
  if (::close(descriptor_.release()) != 0) throw_unwritable(path_, errno);
}

void OutputFile::commit() {
  require(!beside_.empty(), "a file is committed once");
  if (descriptor_.get() >= 0) finish();
  if (::rename(beside_.c_str(), path_.c_str()) != 0) throw_unwritable(path_, errno);
  beside_.clear();
  sync_folder(path_);
}

GrowingFile::GrowingFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(open_to_write(path_, path_)) {}

void GrowingFile::append(std::string_view text) {
  try {
    write_all(descriptor_, std::as_bytes(std::span(text)), path_);
  } catch (const Error&) {
    // Where even this fails the first error is the one to tell.
    [[maybe_unused]] const int cut = ::ftruncate(descriptor_.get(), size_);
    throw;
  }
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0 || status.st_nlink == 0) {
    throw EnvironmentError(fmt::format("'{}' was removed while it was being written", path_.string()));
  }
  size_ += std::ssize(text);
}

void create_folders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_unwritable(path, error.value());
}

void remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0) {
    if (errno != ENOENT) throw_unwritable(path, errno);
    return;
  }
  sync_folder(path);
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
