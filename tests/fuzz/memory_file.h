// A file that a reader can open by its path and whose bytes are in memory: a disk would make fuzzing several times
// slower. Linux only, as memfd_create and /proc/self/fd are.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace annulus {

// Throws where a system call fails, which is no finding about a reader.
inline void require_done(bool done, const char* call) {
  if (!done) throw std::runtime_error(std::string(call) + " failed");
}

// A folder for the names of memory files; it goes when the process ends normally.
class MemoryFolder {
 public:
  MemoryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "annulus-fuzz-XXXXXX").string();
    require_done(::mkdtemp(pattern.data()) != nullptr, "mkdtemp");
    path_ = pattern;
  }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  ~MemoryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class MemoryFile {
 public:
  // Empty at first. `name` in the folder is a link to it.
  MemoryFile(const MemoryFolder& folder, const char* name)
      : path_(folder.path() / name), descriptor_(::memfd_create(name, MFD_CLOEXEC)) {
    require_done(descriptor_ >= 0, "memfd_create");
    std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(descriptor_), path_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Replaces what the file held.
  void write(std::string_view bytes) const {
    require_done(::ftruncate(descriptor_, 0) == 0, "ftruncate");
    require_done(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "pwrite");
  }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace annulus
