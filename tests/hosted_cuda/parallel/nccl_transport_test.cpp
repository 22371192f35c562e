// The NCCL transport on hosted NCCL: what it carries, what orders it, and how it fails.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "hosted_cuda/control.h"
#include "parallel/transports.h"
#include "tests/support/ranks.h"

namespace annulus {
namespace {

Tensor room(Device& device, int64_t count) {
  return device.allocate({count}, DType::float32, Purpose::communication);
}

Tensor filled(Device& device, int64_t count, float value) {
  Tensor tensor = room(device, count);
  upload(device, tensor, std::vector<float>(static_cast<size_t>(count), value));
  return tensor;
}

class NcclTransport : public testing::Test {
 protected:
  ~NcclTransport() override {
    hosted::set_one_kernel_at_a_time(false);
    hosted::set_nccl_timeout(std::chrono::seconds(20));
    hosted::set_seed(0);
  }
};

// Everybody's rank on every channel, round after round; the values of a round are made on the compute stream just
// before.
void talk(Device& device, Transport& transport) {
  const Stream stream = device.compute_stream();
  for (int round = 0; round < 3; ++round) {
    for (const Channel channel : {Channel::keys, Channel::parameters, Channel::key_gradients, Channel::gradients}) {
      const auto value = static_cast<float>(100 * round + transport.rank());
      const Tensor own = filled(device, 5, value), heard = room(device, 5 * transport.size());
      std::vector<Message> sends, receives;
      for (int peer = 0; peer < transport.size(); ++peer) {
        if (peer == transport.rank()) continue;
        sends.push_back({peer, own});
        receives.push_back({peer, heard->slice(5 * peer, 5 * peer + 5)});
      }
      transport.exchange(sends, receives, channel, stream).wait(stream);
      const std::vector<float> result = downloaded<float>(device, heard);
      for (int i = 0; i < 5 * transport.size(); ++i) {
        if (i / 5 == transport.rank()) continue;
        EXPECT_EQ(result[static_cast<size_t>(i)], static_cast<float>(100 * round + i / 5));
      }
    }
  }
}

TEST_F(NcclTransport, EveryRankHearsFromEveryOtherUnderEverySchedule) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    hosted::set_seed(seed);
    for (int ranks = 1; ranks <= 4; ++ranks) run_ranks(ranks, talk);
  }
}

TEST_F(NcclTransport, EveryRankHearsFromEveryOtherWhereOneKernelRunsAtATime) {
  hosted::set_one_kernel_at_a_time(true);
  run_ranks(4, talk);
}

// The host posts and waits, and goes on at once; only the download at the end waits for the GPU.
TEST_F(NcclTransport, TheHostWaitsForNothing) {
  run_ranks(2, [](Device& device, Transport& transport) {
    const Stream stream = device.compute_stream();
    const Tensor own = filled(device, 5, 1), heard = room(device, 5);
    const int64_t before = hosted::host_synchronisations();
    for (int i = 0; i < 10; ++i) {
      const std::array send = {Message{1 - transport.rank(), own}}, receive = {Message{1 - transport.rank(), heard}};
      Request request = transport.exchange(send, receive, i % 2 == 0 ? Channel::keys : Channel::gradients, stream);
      request.wait_received(stream);
      device.accumulate(own, heard, stream);
      request.wait(stream);
    }
    transport.progress();
    EXPECT_EQ(hosted::host_synchronisations(), before);
    EXPECT_EQ(downloaded<float>(device, own), std::vector<float>(5, 1024));
  });
}

TEST_F(NcclTransport, MessagesWithoutElementsAreSent) {
  run_ranks(2, [](Device& device, Transport& transport) {
    const Stream stream = device.compute_stream();
    const Tensor data = filled(device, 5, 1);
    const std::array nothing = {Message{1 - transport.rank(), data->slice(0, 0)}};
    transport.exchange(nothing, nothing, Channel::keys, stream).wait(stream);
    EXPECT_EQ(downloaded<float>(device, data), std::vector<float>(5, 1));
  });
}

TEST_F(NcclTransport, AnExchangeNamesItsStream) {
  EXPECT_THROW(run_ranks(2,
                         [](Device& device, Transport& transport) {
                           const Tensor data = filled(device, 1, 1);
                           const std::array message = {Message{1 - transport.rank(), data}};
                           transport.exchange(message, {}, Channel::keys, {});
                         }),
               InternalError);
}

// What a run on ranks fails with.
std::string failure_of(int ranks, const std::function<void(Device&, Transport&)>& body) {
  try {
    run_ranks(ranks, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

// The others wait on the GPU for a message that never comes, and the host waits for the GPU.
TEST_F(NcclTransport, AFailingRankEndsTheOthersAndItsErrorIsTheOneReported) {
  const std::string failure = failure_of(3, [](Device& device, Transport& transport) {
    const Tensor data = filled(device, 5, 1);
    if (transport.rank() == 1) throw DataError("rank one's own trouble");
    const std::array message = {Message{1, data}};
    const Stream stream = device.compute_stream();
    transport.exchange({}, message, Channel::keys, stream).wait(stream);
    downloaded<float>(device, data);
    transport.progress();
    ADD_FAILURE() << "nothing has failed";
  });
  EXPECT_EQ(failure, "rank one's own trouble");
}

// It ends together with the others, and one of them never comes to that.
TEST_F(NcclTransport, ARankThatIsDoneEndsQuietlyWhereAnotherHasFailed) {
  const std::string failure = failure_of(2, [](Device& device, Transport& transport) {
    if (transport.rank() == 1) throw DataError("rank one's own trouble");
    const Tensor data = filled(device, 5, 1);
    const std::array message = {Message{1, data}};
    transport.exchange({}, message, Channel::keys, device.compute_stream());
  });
  EXPECT_EQ(failure, "rank one's own trouble");
}

TEST_F(NcclTransport, MessagesOfDifferentSizeAreAnErrorThatSaysWhich) {
  const std::string failure = failure_of(2, [](Device& device, Transport& transport) {
    const Stream stream = device.compute_stream();
    const Tensor data = filled(device, transport.rank() == 0 ? 2 : 3, 1);
    const std::array message = {Message{1 - transport.rank(), data}};
    if (transport.rank() == 0) {
      transport.exchange(message, {}, Channel::keys, stream).wait(stream);
    } else {
      transport.exchange({}, message, Channel::keys, stream).wait(stream);
    }
    downloaded<float>(device, data);
    transport.progress();
  });
  EXPECT_NE(failure.find("message 2 from rank 0 to rank 1 has 8 bytes where 12 are received"), std::string::npos)
      << failure;
}

TEST_F(NcclTransport, RanksThatShareAGpuAreRefused) {
  hosted::set_nccl_timeout(std::chrono::milliseconds(200));
  std::array<std::string, 2> failures;
  run_as_threads(2, [&](Transport& host) {
    const auto device = make_shared_device();
    try {
      make_nccl_transport(host);
    } catch (const EnvironmentError& error) {
      failures[static_cast<size_t>(host.rank())] = error.what();
    }
  });
  const std::string& failure = failures[failures[0].find("same device") == std::string::npos ? 1 : 0];
  EXPECT_EQ(failure.find("NCCL: ncclCommInitRankConfig: "), 0U) << failure;
  EXPECT_NE(failure.find("have the same device, 0"), std::string::npos) << failure;
}

// Rank 0 never comes to NCCL.
TEST_F(NcclTransport, SaysWhoDoesNotComeToTheBeginning) {
  hosted::set_nccl_timeout(std::chrono::milliseconds(200));
  std::string failure = "nothing";
  run_as_threads(1, [&](Transport& host) {
    class Pretended : public Transport {  // a rank that hears an id from nobody
     public:
      explicit Pretended(Transport& alone) : alone_(alone) {}
      [[nodiscard]] int rank() const override { return 0; }
      [[nodiscard]] int size() const override { return 2; }
      Request exchange(std::span<const Message> /*sends*/, std::span<const Message> /*receives*/, Channel /*channel*/,
                       Stream /*stream*/) override {
        return {};
      }
      void progress() override {}
      void barrier() override { alone_.barrier(); }

     private:
      Transport& alone_;
    } pretended(host);
    const auto device = make_cuda_device({.gpu = 0});
    try {
      make_nccl_transport(pretended);
    } catch (const EnvironmentError& error) {
      failure = error.what();
    }
  });
  EXPECT_NE(failure.find("rank 1 did not come to initialise the communicator"), std::string::npos) << failure;
}

}  // namespace
}  // namespace annulus
