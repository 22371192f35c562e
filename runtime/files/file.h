// Files read range by range and written so that they appear whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace annulus {

// A file open for reading. Throws DataError naming the path where it cannot be opened or ends early.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] int64_t size() const { return size_; }                // bytes
  void read(int64_t offset, std::span<std::byte> destination) const;  // all of it, or throws

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// A file written beside its place as PATH.partial and renamed there by commit(), after a sync; without commit() it
// vanishes. Throws MemoryError where the disk is full and EnvironmentError where it cannot be written, naming the path.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);  // appends
  void commit();

 private:
  std::filesystem::path path_, beside_;
  int descriptor_ = -1;
};

// The text of a small file: at most 64 MiB, else a DataError.
std::string read_text(const std::filesystem::path& path);

}  // namespace annulus
