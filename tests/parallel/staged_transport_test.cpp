// Messages that are copied through the host arrive as those that are not, on every channel and in any order of waiting.
#include "parallel/staged_transport.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/device.h"
#include "parallel/transports.h"
#include "tests/support/ranks.h"

namespace annulus {
namespace {

constexpr int64_t length = 50;

// Each rank sends every other `length` numbers that name both and the channel.
float number(int from, int to, Channel channel) {
  return static_cast<float>(1 + from + 10 * to + 100 * static_cast<int>(channel));
}

struct Round {
  std::vector<Tensor> sent, received;
  std::vector<int> peers;
  Request request;
};

Round start(Transport& transport, Device& device, Channel channel) {
  Round round;
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer == transport.rank()) continue;
    const std::vector<float> numbers(length, number(transport.rank(), peer, channel));
    round.sent.push_back(device.allocate({length}, DType::float32, Purpose::communication));
    round.received.push_back(device.allocate({length}, DType::float32, Purpose::communication));
    device.upload(round.sent.back(), numbers.data(), {});
    sends.push_back({peer, round.sent.back()});
    receives.push_back({peer, round.received.back()});
    round.peers.push_back(peer);
  }
  round.request = transport.exchange(sends, receives, channel, {});
  return round;
}

void finish(Round& round, const Transport& transport, Device& device, Channel channel) {
  round.request.wait_received({});
  for (size_t i = 0; i < round.peers.size(); ++i) {
    std::vector<float> numbers(length);
    device.download(numbers.data(), round.received[i], {});
    EXPECT_EQ(numbers, std::vector<float>(length, number(round.peers[i], transport.rank(), channel)));
  }
  round.request.wait({});
}

TEST(StagedTransport, CarriesWhatDevicesHold) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_as_threads(ranks, [](Transport& host) {
      const auto device = make_shared_device();
      StagedTransport transport(host, *device);
      Round keys = start(transport, *device, Channel::keys);
      Round parameters = start(transport, *device, Channel::parameters);
      finish(parameters, transport, *device, Channel::parameters);
      finish(keys, transport, *device, Channel::keys);
      transport.barrier();
    });
  }
}

}  // namespace
}  // namespace annulus
