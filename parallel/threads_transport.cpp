// Ranks as threads of one process. Messages are copied from the sender's memory when both sides have posted them, as a
// network card would: whoever changes a buffer before the request has been waited for sends the wrong bytes.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/error.h"
#include "parallel/transports.h"

namespace annulus {
namespace {

struct Posted {
  View data;
  bool done = false;
};
using PostedPtr = std::shared_ptr<Posted>;

// What the ranks of one run share. All members are guarded by the mutex.
class Exchange {
 public:
  explicit Exchange(int ranks) : ranks_(ranks) {}

  [[nodiscard]] int ranks() const { return ranks_; }

  PostedPtr post(int from, int to, Channel channel, const View& data, bool is_send) {
    const std::scoped_lock lock(mutex_);
    auto posted = std::make_shared<Posted>(Posted{data, false});
    Line& line = lines_[{from, to, channel}];
    (is_send ? line.sends : line.receives).push_back(posted);
    match(line);
    changed_.notify_all();
    return posted;
  }

  void wait(std::span<const PostedPtr> posted) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return failed_ || std::all_of(posted.begin(), posted.end(), [](const PostedPtr& p) { return p->done; });
    });
    throw_if_failed();
  }

  void barrier() {
    std::unique_lock lock(mutex_);
    const int64_t generation = generation_;
    if (++waiting_ == ranks_) {
      waiting_ = 0;
      ++generation_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return failed_ || generation_ != generation; });
    throw_if_failed();
  }

  void fail() {
    const std::scoped_lock lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

 private:
  struct Line {
    std::deque<PostedPtr> sends, receives;
  };

  static void match(Line& line) {
    while (!line.sends.empty() && !line.receives.empty()) {
      Posted& send = *line.sends.front();
      Posted& receive = *line.receives.front();
      require(send.data.bytes() == receive.data.bytes(), "a message and the memory waiting for it differ in size");
      if (!send.data.empty()) {
        std::memcpy(receive.data.data(), send.data.data(), static_cast<size_t>(send.data.bytes()));
      }
      send.done = receive.done = true;
      line.sends.pop_front();
      line.receives.pop_front();
    }
  }

  void throw_if_failed() const {
    if (failed_) throw ConnectionError("another rank has failed");
  }

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, Channel>, Line> lines_;
  int waiting_ = 0;
  int64_t generation_ = 0;
  bool failed_ = false;
};

class ThreadsRequest : public Request::State {
 public:
  ThreadsRequest(Exchange& exchange, std::vector<PostedPtr> receives, std::vector<PostedPtr> sends)
      : exchange_(exchange), receives_(std::move(receives)), sends_(std::move(sends)) {}

  void wait_received(Stream /*stream*/) override { exchange_.wait(receives_); }
  void wait(Stream /*stream*/) override {
    exchange_.wait(receives_);
    exchange_.wait(sends_);
  }

 private:
  Exchange& exchange_;
  std::vector<PostedPtr> receives_, sends_;
};

class ThreadsTransport : public Transport {
 public:
  ThreadsTransport(Exchange& exchange, int rank) : exchange_(exchange), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return exchange_.ranks(); }

  Request exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                   Stream /*stream*/) override {
    if (sends.empty() && receives.empty()) return {};
    std::vector<PostedPtr> posted_receives, posted_sends;
    for (const Message& m : receives) posted_receives.push_back(exchange_.post(m.peer, rank_, channel, m.data, false));
    for (const Message& m : sends) posted_sends.push_back(exchange_.post(rank_, m.peer, channel, m.data, true));
    return Request(std::make_unique<ThreadsRequest>(exchange_, std::move(posted_receives), std::move(posted_sends)));
  }

  void progress() override {}
  void barrier() override { exchange_.barrier(); }

 private:
  Exchange& exchange_;
  int rank_;
};

}  // namespace

void run_as_threads(int ranks, const std::function<void(Transport&)>& rank_main) {
  Exchange exchange(ranks);
  std::mutex mutex;
  std::exception_ptr cause, consequence;  // the first of each
  const auto run = [&](int rank) {
    const auto note = [&](std::exception_ptr& first) {
      const std::scoped_lock lock(mutex);
      if (!first) first = std::current_exception();
    };
    try {
      ThreadsTransport transport(exchange, rank);
      rank_main(transport);
      return;
    } catch (const ConnectionError&) {
      note(consequence);
    } catch (...) {
      note(cause);
    }
    exchange.fail();
  };
  std::vector<std::jthread> others;
  for (int rank = 1; rank < ranks; ++rank) others.emplace_back(run, rank);
  run(0);
  others.clear();
  if (cause || consequence) std::rethrow_exception(cause ? cause : consequence);
}

}  // namespace annulus
