#include "kernels/file_storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/error.h"
#include "kernels/narrow.h"

namespace annulus {
namespace {

// Not O_TMPFILE, which some file systems lack.
FileDescriptor open_nameless(const std::filesystem::path& directory) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  std::string name = (directory / "annulus-offload-XXXXXX").string();
  FileDescriptor file(failure ? -1 : ::mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) {
    throw EnvironmentError(fmt::format("memory.directory: no file can be made in '{}' ({}); choose another directory",
                                       directory.string(), failure ? failure.message() : std::strerror(errno)));
  }
  ::unlink(name.c_str());
  return file;
}

// Now, and not in the middle of a step. A file system that cannot promise room leaves a hole that fills later. What is
// free is asked for first: on the way to failing, fallocate would take all there is from others.
void take_room(const FileDescriptor& file, int64_t bytes, const std::filesystem::path& path) {
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(path.parent_path(), unknown);
  if (!unknown && space.available < static_cast<uintmax_t>(bytes)) {
    throw MemoryError(
        fmt::format("memory.directory: '{}' has {} bytes free, but a rank needs {}; free some space or "
                    "choose another directory",
                    path.parent_path().string(), space.available, bytes));
  }
  int failed = 0;
  do {
    failed = ::fallocate(file.get(), 0, 0, bytes) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == EOPNOTSUPP) failed = ::ftruncate(file.get(), bytes) == 0 ? 0 : errno;
  if (failed != 0) throw_unwritable(path, failed);
}

class HostAccess final : public ChunkAccess {
 public:
  std::function<void()> after(Stream /*stream*/) override {
    return [] {};
  }
  const std::byte* get(const std::byte* data, int64_t /*bytes*/) override { return data; }
  std::byte* room(std::byte* data, int64_t /*bytes*/) override { return data; }
  void put(std::byte* /*data*/, int64_t /*bytes*/) override {}
};

}  // namespace

std::unique_ptr<ChunkAccess> make_host_access() {
  return std::make_unique<HostAccess>();
}

class FileStorage::Pending final : public Transfer::State {
 public:
  Pending(FileStorage& storage, const std::byte* data, int64_t bytes, int64_t number)
      : storage_(storage), data_(data), bytes_(bytes), number_(number) {
    storage_.memory_.hold(data_, bytes_);
  }
  void wait(Stream /*stream*/) override {
    storage_.wait(number_);
    storage_.memory_.let_go(data_, bytes_);
  }

 private:
  FileStorage& storage_;
  const std::byte* data_;
  int64_t bytes_, number_;
};

FileStorage::FileStorage(const std::filesystem::path& directory, int64_t bytes, Memory& memory,
                         std::unique_ptr<ChunkAccess> access)
    : memory_(memory),
      access_(std::move(access)),
      path_(directory / "annulus-offload"),
      file_(open_nameless(directory)),
      bytes_(bytes) {
  if (bytes_ > 0) take_room(file_, bytes_, path_);
  thread_ = std::thread([this] { run(); });
}

FileStorage::~FileStorage() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

int64_t FileStorage::reserve(int64_t bytes) {
  const int64_t begin = reserved_;
  reserved_ += round_up(bytes, memory_alignment);
  require(reserved_ <= bytes_, "a run stores no more than its plan");
  return begin;
}

Transfer FileStorage::store(int64_t offset, View source, Stream stream) {
  return post({.to_file = true,
               .offset = offset,
               .data = static_cast<std::byte*>(source.data()),
               .bytes = source.bytes(),
               .ready = {}},
              stream);
}

Transfer FileStorage::load(View destination, int64_t offset, Stream stream) {
  return post({.to_file = false,
               .offset = offset,
               .data = static_cast<std::byte*>(destination.data()),
               .bytes = destination.bytes(),
               .ready = {}},
              stream);
}

Transfer FileStorage::post(Copy copy, Stream stream) {
  require(copy.offset >= 0 && copy.offset + copy.bytes <= reserved_, "a transfer stays within what was reserved");
  copy.ready = access_->after(stream);
  const std::byte* const data = copy.data;
  const int64_t bytes = copy.bytes;
  int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(copy));
    number = ++posted_;
  }
  changed_.notify_all();
  return Transfer(std::make_unique<Pending>(*this, data, bytes, number));
}

void FileStorage::wait(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void FileStorage::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    const Copy copy = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      move(copy);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ++done_;
    if (failure && !failure_) failure_ = failure;
    changed_.notify_all();
  }
}

void FileStorage::move(const Copy& copy) {
  copy.ready();
  for (int64_t done = 0; done < copy.bytes;) done += move_chunk(copy, done);
}

// Returns how much of what is left has moved.
int64_t FileStorage::move_chunk(const Copy& copy, int64_t done) {
  const int64_t bytes = std::min(ChunkAccess::chunk_bytes, copy.bytes - done);
  std::byte* const data = copy.data + done;
  ssize_t count = 0;
  do {
    count = copy.to_file
                ? ::pwrite(file_.get(), access_->get(data, bytes), static_cast<size_t>(bytes), copy.offset + done)
                : ::pread(file_.get(), access_->room(data, bytes), static_cast<size_t>(bytes), copy.offset + done);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && copy.to_file) throw_unwritable(path_, errno);
  if (count <= 0) {
    throw EnvironmentError(fmt::format("cannot read back what was stored in '{}': {}", path_.string(),
                                       count == 0 ? "the file is shorter than it was" : std::strerror(errno)));
  }
  if (!copy.to_file) access_->put(data, count);
  return count;
}

}  // namespace annulus
