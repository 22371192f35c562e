// Files read range by range and written so that they appear whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "kernels/file_descriptor.h"

namespace annulus {

// A file open for reading. Throws DataError naming the path where it cannot be opened or ends early.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] int64_t size() const { return size_; }                // bytes
  void read(int64_t offset, std::span<std::byte> destination) const;  // all of it, or throws
  void require_size(int64_t bytes) const;  // throws where the file is not as long as it was when it was first looked at

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
  int64_t size_ = 0;
};

// A file written beside its place as PATH.partial and renamed there by commit(), after a sync; without commit() it
// vanishes. Throws MemoryError where it does not fit (disk full, quota, limit on the size of files) and
// EnvironmentError where it cannot be written, naming the path. The process must ignore SIGXFSZ, which by default ends
// it before a write over the limit can fail.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);  // appends
  void finish();  // nothing more is written: synced and closed, so that of several files each is committed in a moment
  void commit();  // finishes what is not finished

 private:
  std::filesystem::path path_, beside_;
  FileDescriptor descriptor_;
};

// A file that others read while it grows; replaces what was there. Errors as those of OutputFile; and EnvironmentError
// where somebody has removed it.
class GrowingFile {
 public:
  explicit GrowingFile(std::filesystem::path path);
  void append(std::string_view text);  // in the file on return, or, where it throws, nothing of it is

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
  int64_t size_ = 0;  // bytes
};

// A folder with all it lies in, and the end of a file; neither minds where that is so already. Errors as above.
void create_folders(const std::filesystem::path& path);
void remove_file(const std::filesystem::path& path);

// The text of a small file: at most 64 MiB, else a DataError.
std::string read_text(const std::filesystem::path& path);

}  // namespace annulus
