// Storage in a file that nobody else sees and that is gone when the process is: created without a name, or unlinked as
// soon as it is open. One background thread moves bytes between the file and the device's memory, which on the CPU is
// the host's, so that no copy lies between them.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "kernels/file_descriptor.h"
#include "kernels/storage.h"

namespace annulus::cpu {

class FileStorage final : public Storage {
 public:
  // A file of `bytes` bytes in `directory`, its room taken at once where the file system can: MemoryError where it is
  // not there, EnvironmentError where the directory cannot be written, both naming it. What is on its way is held in
  // `memory`.
  FileStorage(const std::filesystem::path& directory, int64_t bytes, Memory& memory);
  FileStorage(const FileStorage&) = delete;
  FileStorage& operator=(const FileStorage&) = delete;
  ~FileStorage() override;  // transfers that nobody waited for may be left out

  int64_t reserve(int64_t bytes) override;  // InternalError beyond the file's end
  Transfer store(int64_t offset, View source, Stream stream) override;
  Transfer load(View destination, int64_t offset, Stream stream) override;

 private:
  struct Copy {
    bool to_file = false;
    int64_t offset = 0;
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  class Pending;

  Transfer post(const Copy& copy);
  void wait(int64_t number);  // for the copy of that number, from 1, and all before it
  void run();                 // the background thread
  void move(const Copy& copy) const;

  Memory& memory_;
  std::filesystem::path path_;
  FileDescriptor file_;
  int64_t bytes_, reserved_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Copy> queue_;
  int64_t posted_ = 0, done_ = 0;
  bool closing_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace annulus::cpu
