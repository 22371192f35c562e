// An open file of the operating system, and what its failures mean.
#pragma once

#include <filesystem>
#include <utility>

namespace annulus {

// Owns it; none if negative.
class FileDescriptor {
 public:
  explicit FileDescriptor(int value = -1) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~FileDescriptor();

  [[nodiscard]] int get() const { return value_; }
  [[nodiscard]] int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// Says that `path` could not be written, and why: MemoryError where it does not fit (disk full, quota, limit on the
// size of files), else EnvironmentError. `error`: an errno.
[[noreturn]] void throw_unwritable(const std::filesystem::path& path, int error);

}  // namespace annulus
