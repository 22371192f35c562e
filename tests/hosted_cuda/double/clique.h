// The ranks of one NCCL communicator, as threads of this process, and the messages between them. Everything is called
// under Hidden.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/hosted_cuda/double/machine.h"

namespace annulus::hosted {

// One ncclSend or ncclRecv.
struct Transfer {
  bool is_send;
  void* data;
  size_t bytes;
  int peer;
};

// What one rank does between ncclGroupStart and ncclGroupEnd on one communicator: one kernel.
using Group = std::vector<Transfer>;

class Clique {
 public:
  explicit Clique(int ranks) : ranks_(ranks), members_(static_cast<size_t>(ranks)) {}

  [[nodiscard]] int ranks() const { return ranks_; }

  // Rank `rank` comes, with its device; empty, or why it may not.
  std::string join(int rank, int device);

  // Whether all ranks have come. Fails, naming the missing, when `since` is too long ago.
  bool complete(std::chrono::steady_clock::time_point since);

  // Sends and receives what the group says; returns when all of it has been taken and has come. After a failure it
  // returns when this rank has aborted, as a kernel of NCCL does.
  void run(int rank, const Group& group);

  // The rank's own; the others' operations fail.
  void abort(int rank);

  // What has gone wrong, as rank `rank` sees it.
  ncclResult_t error(int rank);
  std::string why();

 private:
  struct Sent {
    std::vector<std::byte> data;
    char promise = 0;  // what was before the sender's group is before what follows the receiver's
    bool taken = false;
  };

  struct Member {
    bool joined = false;
    bool aborted = false;
    int device = 0;
    int groups = 0;  // begun
    std::string waits_for;
  };

  static std::shared_ptr<Sent> read_out(const Transfer& send);

  using Lock = std::unique_lock<std::mutex>;
  template <class Condition>
  bool wait(Lock& lock, int rank, const std::string& what, Condition&& condition);
  bool take(Lock& lock, int rank, const Transfer& receive);
  void fail(ncclResult_t error, const std::string& why);
  [[nodiscard]] std::string others(int rank) const;

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Sent>>> lines_;  // from a rank to another
  std::map<std::pair<int, int>, int> received_;                             // messages so far
  ncclResult_t error_ = ncclSuccess;
  std::string why_;
};

}  // namespace annulus::hosted
