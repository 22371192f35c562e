// NCCL between ranks that are threads: what matches, and what each mismatch comes to.
#include <nccl.h>

#include <array>
#include <functional>
#include <optional>
#include <thread>

#include "tests/hosted_cuda/fixture.h"

namespace annulus::hosted {
namespace {

using std::chrono::milliseconds;

// One rank of a test: a device of its own, a stream and a communicator.
class Rank {
 public:
  Rank(int rank, int ranks, const ncclUniqueId& id, bool blocking) : rank_(rank) {
    EXPECT_SUCCESS(cudaSetDevice(rank));
    EXPECT_SUCCESS(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    initialised_ = ncclCommInitRankConfig(&communicator_, ranks, id, rank, &config);
    if (!blocking && initialised_ == ncclInProgress) initialised_ = settle();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    if (communicator_ != nullptr && initialised_ == ncclSuccess && state() == ncclSuccess) {
      EXPECT_NE(ncclCommFinalize(communicator_), ncclInvalidUsage);
      EXPECT_EQ(settle(), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(communicator_), ncclSuccess);
    } else if (communicator_ != nullptr) {
      EXPECT_EQ(ncclCommAbort(communicator_), ncclSuccess);
    }
    EXPECT_SUCCESS(cudaStreamSynchronize(stream_));
    EXPECT_SUCCESS(cudaStreamDestroy(stream_));
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] ncclResult_t initialised() const { return initialised_; }
  [[nodiscard]] ncclComm_t communicator() const { return communicator_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  [[nodiscard]] ncclResult_t state() const {
    ncclResult_t result = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(communicator_, &result), ncclSuccess);
    return result;
  }
  [[nodiscard]] ncclResult_t settle() const {
    ncclResult_t result = state();
    for (; result == ncclInProgress; result = state()) std::this_thread::sleep_for(milliseconds(1));
    return result;
  }
  // Until the communicator has failed; why.
  [[nodiscard]] std::string failure() const {
    while (state() == ncclSuccess) std::this_thread::sleep_for(milliseconds(1));
    return ncclGetLastError(communicator_);
  }

  void abort() { EXPECT_EQ(ncclCommAbort(std::exchange(communicator_, nullptr)), ncclSuccess); }

  ncclResult_t send(const DeviceArray<int>& data, size_t count, int peer) const {
    return ncclSend(data.get(), count, ncclInt32, peer, communicator_, stream_);
  }
  ncclResult_t receive(const DeviceArray<int>& data, size_t count, int peer) const {
    return ncclRecv(data.get(), count, ncclInt32, peer, communicator_, stream_);
  }

 private:
  int rank_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  ncclResult_t initialised_;
};

class HostedNccl : public HostedCuda {
 protected:
  ~HostedNccl() override {
    set_nccl_timeout(milliseconds(20000));
    set_one_kernel_at_a_time(false);
  }

  static void on_ranks(int ranks, bool blocking, const std::function<void(Rank&)>& body) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::jthread> threads;
    for (int i = 0; i < ranks; ++i) {
      threads.emplace_back([&, i] {
        Rank rank(i, ranks, id, blocking);
        body(rank);
      });
    }
  }

  // Both ranks end with a failure that says `text`.
  static void expect_failure(const std::function<void(Rank&, const DeviceArray<int>&)>& body, const std::string& text) {
    on_ranks(2, true, [&](Rank& rank) {
      const DeviceArray<int> data(std::vector<int>(4), rank.stream());
      body(rank, data);
      const std::string failure = rank.failure();
      EXPECT_NE(failure.find(text), std::string::npos) << failure;
      EXPECT_EQ(ncclSend(data.get(), 4, ncclInt32, 1 - rank.rank(), rank.communicator(), rank.stream()),
                ncclInvalidUsage);
      rank.abort();  // memory is not freed before
    });
  }
};

TEST_F(HostedNccl, EveryRankHearsFromEveryOtherUnderEverySchedule) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    set_seed(seed);
    on_ranks(4, false, [](Rank& rank) {
      std::vector<int> own(16, rank.rank());
      const DeviceArray<int> sent(own, rank.stream()), heard(std::vector<int>(64), rank.stream());
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == rank.rank()) continue;
        EXPECT_EQ(rank.send(sent, 16, peer), ncclSuccess);
        EXPECT_EQ(ncclRecv(heard.get() + 16 * peer, 16, ncclInt32, peer, rank.communicator(), rank.stream()),
                  ncclSuccess);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
      EXPECT_EQ(rank.settle(), ncclSuccess);
      const std::vector<int> result = heard.download();
      for (int i = 0; i < 64; ++i) EXPECT_EQ(result[static_cast<size_t>(i)], i / 16 == rank.rank() ? 0 : i / 16);
    });
  }
}

TEST_F(HostedNccl, ACommunicatorThatIsNotAskedHasNotBegun) {
  set_seed(3);
  on_ranks(2, false, [](Rank& rank) {
    const DeviceArray<int> data(std::vector<int>(4, rank.rank()), rank.stream());
    const bool sends = rank.rank() == 0;
    EXPECT_EQ(sends ? rank.send(data, 4, 1) : rank.receive(data, 4, 0), ncclInProgress);
    EXPECT_EQ(sends ? rank.send(data, 4, 1) : rank.receive(data, 4, 0), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("before its last operation"), std::string::npos);
    EXPECT_EQ(data.download()[0], rank.rank());
    EXPECT_EQ(rank.settle(), ncclSuccess);
    EXPECT_EQ(data.download()[0], 0);
  });
}

TEST_F(HostedNccl, SaysWhoseMessageHasAnotherSize) {
  expect_failure(
      [](Rank& rank, const DeviceArray<int>& data) {
        EXPECT_EQ(rank.rank() == 0 ? rank.send(data, 4, 1) : rank.receive(data, 3, 0), ncclSuccess);
      },
      "message 1 from rank 0 to rank 1 has 16 bytes where 12 are received");
}

TEST_F(HostedNccl, SaysWhichMessagesChangedTheirOrder) {
  expect_failure(
      [](Rank& rank, const DeviceArray<int>& data) {
        EXPECT_EQ(ncclGroupStart(), ncclSuccess);
        for (const size_t count : {2, 3}) {
          EXPECT_EQ(rank.rank() == 0 ? rank.send(data, count, 1) : rank.receive(data, 5 - count, 0), ncclSuccess);
        }
        EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      },
      "message 1 from rank 0 to rank 1 has 8 bytes where 12 are received");
}

// Each would receive only after its own message had been taken: as one group it works, as two it waits for ever.
TEST_F(HostedNccl, SaysWhatIsMissingWhereAGroupIsTornApart) {
  set_nccl_timeout(milliseconds(200));
  expect_failure(
      [](Rank& rank, const DeviceArray<int>& data) {
        EXPECT_EQ(rank.send(data, 4, 1 - rank.rank()), ncclSuccess);
        EXPECT_EQ(rank.receive(data, 4, 1 - rank.rank()), ncclSuccess);
      },
      "to receive 16 bytes, which does not come; rank ");
}

TEST_F(HostedNccl, SaysWhoDoesNotCome) {
  set_nccl_timeout(milliseconds(200));
  on_ranks(3, true, [](Rank& rank) {
    const DeviceArray<int> data(std::vector<int>(4), rank.stream());
    if (rank.rank() == 0) {
      EXPECT_EQ(rank.receive(data, 4, 2), ncclSuccess);
    }
    const std::string failure = rank.failure();
    EXPECT_NE(
        failure.find("rank 0 waits in its group 1 for 16 bytes from rank 2, which does not come; rank 1 has begun 0 "
                     "groups; rank 2 has begun 0 groups"),
        std::string::npos)
        << failure;
    rank.abort();
  });
}

TEST_F(HostedNccl, SaysWhoDoesNotComeToTheBeginning) {
  set_nccl_timeout(milliseconds(100));
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const Rank rank(1, 3, id, false);
  EXPECT_EQ(rank.initialised(), ncclSystemError);
  EXPECT_STREQ(ncclGetLastError(rank.communicator()), "ranks 0, 2 did not come to initialise the communicator");
}

TEST_F(HostedNccl, RefusesTwoRanksOnOneDevice) {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t first = nullptr, second = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInvalidUsage);
  EXPECT_STREQ(ncclGetLastError(nullptr), "rank 1 and rank 0 have the same device, 0");
  EXPECT_EQ(ncclCommAbort(first), ncclSuccess);
}

TEST_F(HostedNccl, RefusesPeersAndMemoryThatAreNone) {
  on_ranks(2, true, [](Rank& rank) {
    const DeviceArray<int> data(std::vector<int>(4), rank.stream());
    EXPECT_EQ(rank.send(data, 4, 2), ncclInvalidArgument);
    EXPECT_EQ(rank.send(data, 4, rank.rank()), ncclInvalidArgument);
    EXPECT_EQ(rank.send(data, 5, 1 - rank.rank()), ncclInvalidArgument);
    int on_the_host[4] = {};
    EXPECT_EQ(ncclSend(on_the_host, 4, ncclInt32, 1 - rank.rank(), rank.communicator(), rank.stream()),
              ncclInvalidArgument);
  });
}

TEST_F(HostedNccl, OneRankThatAbortsEndsTheOthersWait) {
  on_ranks(2, true, [](Rank& rank) {
    const DeviceArray<int> data(std::vector<int>(4), rank.stream());
    if (rank.rank() == 0) {
      EXPECT_EQ(rank.receive(data, 4, 1), ncclSuccess);
      EXPECT_EQ(rank.failure(), "rank 1 has aborted the communicator");
      EXPECT_EQ(rank.state(), ncclRemoteError);
      rank.abort();
    } else {
      std::this_thread::sleep_for(milliseconds(20));
      rank.abort();
    }
  });
}

// Two communicators, each with a stream, used by the two ranks in different orders: on a GPU that runs both kernels at
// once all is well, on one that does not the ranks wait for each other.
TEST_F(HostedNccl, OneKernelAtATimeShowsADeadlockByTheOrderOfLaunches) {
  set_nccl_timeout(milliseconds(200));
  for (const bool one_at_a_time : {false, true}) {
    set_one_kernel_at_a_time(one_at_a_time);
    ncclUniqueId first, second;
    EXPECT_EQ(ncclGetUniqueId(&first), ncclSuccess);
    EXPECT_EQ(ncclGetUniqueId(&second), ncclSuccess);
    std::array<bool, 2> failed{};
    const auto body = [&](int i) {
      std::optional<Rank> a(std::in_place, i, 2, first, true), b(std::in_place, i, 2, second, true);
      const DeviceArray<int> data(std::vector<int>(4), a->stream()), more(std::vector<int>(4), b->stream());
      for (const Rank* rank : i == 0 ? std::array{&*a, &*b} : std::array{&*b, &*a}) {
        const DeviceArray<int>& used = rank == &*a ? data : more;
        EXPECT_EQ(i == 0 ? rank->send(used, 4, 1) : rank->receive(used, 4, 0), ncclSuccess);
      }
      std::this_thread::sleep_for(milliseconds(400));
      failed[static_cast<size_t>(i)] = a->state() != ncclSuccess || b->state() != ncclSuccess;
      if (a->state() != ncclSuccess) a.reset();
      b.reset();
    };
    {
      std::jthread one(body, 1);
      body(0);
    }
    EXPECT_EQ(failed[0] || failed[1], one_at_a_time);
    EXPECT_SUCCESS(cudaSetDevice(0));
  }
}

}  // namespace
}  // namespace annulus::hosted
