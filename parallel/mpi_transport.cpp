#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "kernels/error.h"
#include "kernels/narrow.h"
#include "parallel/transports.h"

namespace annulus {
namespace {

constexpr int64_t largest_piece = int64_t{1} << 30;  // bytes: MPI counts are int, and pieces keep staging bounded

void check(int result, const char* call, SourceLocation where = SourceLocation::current()) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw ConnectionError(std::string(call) + ": " + std::string(text.data(), static_cast<size_t>(length)), where);
}

template <class F>  // F(std::byte* data, int bytes)
void for_each_piece(const View& data, F&& body) {
  auto* begin = static_cast<std::byte*>(data.data());
  for (int64_t done = 0; done < data.bytes(); done += largest_piece) {
    body(begin + done, narrow<int>(std::min(largest_piece, data.bytes() - done)));
  }
}

class MpiRequest : public Request::State {
 public:
  void receive(const Message& message, MPI_Comm communicator) {
    for_each_piece(message.data, [&](std::byte* data, int bytes) {
      receives_.push_back(MPI_REQUEST_NULL);
      sizes_.push_back(bytes);
      check(MPI_Irecv(data, bytes, MPI_BYTE, message.peer, 0, communicator, &receives_.back()), "MPI_Irecv");
    });
  }

  void send(const Message& message, MPI_Comm communicator) {
    for_each_piece(message.data, [&](std::byte* data, int bytes) {
      sends_.push_back(MPI_REQUEST_NULL);
      check(MPI_Isend(data, bytes, MPI_BYTE, message.peer, 0, communicator, &sends_.back()), "MPI_Isend");
    });
  }

  void wait_received(Stream /*stream*/) override {
    std::vector<MPI_Status> statuses(receives_.size());
    check(MPI_Waitall(narrow<int>(receives_.size()), receives_.data(), statuses.data()), "MPI_Waitall");
    for (size_t i = 0; i < statuses.size(); ++i) {
      int bytes = 0;
      check(MPI_Get_count(&statuses[i], MPI_BYTE, &bytes), "MPI_Get_count");
      require(bytes == sizes_[i], "a message and the memory waiting for it differ in size");
    }
    receives_.clear();
    sizes_.clear();
  }

  void wait(Stream stream) override {
    wait_received(stream);
    check(MPI_Waitall(narrow<int>(sends_.size()), sends_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  }

 private:
  std::vector<MPI_Request> receives_, sends_;
  std::vector<int> sizes_;  // of receives_, in bytes
};

class MpiTransport : public Transport {
 public:
  MpiTransport() {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    for (MPI_Comm& communicator : communicators_) {
      check(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup");
      check(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  // Freeing a communicator is collective: after a failure the others would never come.
  ~MpiTransport() override {
    if (std::uncaught_exceptions() > 0) return;
    for (MPI_Comm& communicator : communicators_) MPI_Comm_free(&communicator);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  Request exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                   Stream /*stream*/) override {
    if (sends.empty() && receives.empty()) return {};
    MPI_Comm communicator = communicators_[static_cast<size_t>(channel)];
    auto request = std::make_unique<MpiRequest>();
    for (const Message& message : receives) request->receive(message, communicator);
    for (const Message& message : sends) request->send(message, communicator);
    return Request(std::move(request));
  }

  // Any call that looks for messages moves those under way.
  void progress() override {
    int found = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicators_[0], &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
  }

  void barrier() override { check(MPI_Barrier(communicators_[0]), "MPI_Barrier"); }

 private:
  int rank_ = 0, size_ = 1;
  std::array<MPI_Comm, channel_count> communicators_{};
};

}  // namespace

MpiSession::MpiSession() {
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    throw EnvironmentError(
        "this MPI cannot be used from a process with threads; install one built with thread support");
  }
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() == 0) MPI_Finalize();
}

int MpiSession::rank() const {
  int rank = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

int MpiSession::size() const {
  int size = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

int MpiSession::local_rank() const {
  MPI_Comm machine = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &machine),
        "MPI_Comm_split_type");
  int rank = 0;
  check(MPI_Comm_rank(machine, &rank), "MPI_Comm_rank");
  check(MPI_Comm_free(&machine), "MPI_Comm_free");
  return rank;
}

void MpiSession::abort(int exit_code) const noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

std::unique_ptr<Transport> MpiSession::transport() const {
  return std::make_unique<MpiTransport>();
}

}  // namespace annulus
