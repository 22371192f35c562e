// Storage in a file that nobody else sees and that is gone when the process is: it has no name from the moment it is
// open. One background thread moves bytes between the file and the device's memory.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "kernels/file_descriptor.h"
#include "kernels/storage.h"

namespace annulus {

// How the background thread reaches the memory of a device, at most chunk_bytes at a time.
class ChunkAccess {
 public:
  static constexpr int64_t chunk_bytes = int64_t{64} << 20;

  virtual ~ChunkAccess() = default;

  // On the rank's thread: what the background thread must call before it moves anything of a copy that follows what was
  // queued on `stream`.
  virtual std::function<void()> after(Stream stream) = 0;

  // On the background thread: host memory that holds `bytes` bytes from `data`; host memory whose contents put() takes
  // to `data`.
  virtual const std::byte* get(const std::byte* data, int64_t bytes) = 0;
  virtual std::byte* room(std::byte* data, int64_t bytes) = 0;
  virtual void put(std::byte* data, int64_t bytes) = 0;
};

// Of a device whose memory is the host's: nothing lies in between.
std::unique_ptr<ChunkAccess> make_host_access();

class FileStorage final : public Storage {
 public:
  // A file of `bytes` bytes in `directory`, its room taken at once where the file system can: MemoryError where it is
  // not there, EnvironmentError where the directory cannot be written, both naming it. What is on its way is held in
  // `memory`.
  FileStorage(const std::filesystem::path& directory, int64_t bytes, Memory& memory,
              std::unique_ptr<ChunkAccess> access);
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
    std::function<void()> ready;
  };
  class Pending;

  Transfer post(Copy copy, Stream stream);
  void wait(int64_t number);  // for the copy of that number, from 1, and all before it
  void run();                 // the background thread
  void move(const Copy& copy);
  [[nodiscard]] int64_t move_chunk(const Copy& copy, int64_t done);

  Memory& memory_;
  std::unique_ptr<ChunkAccess> access_;
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

}  // namespace annulus
