#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <vector>

#include "parallel/transports.h"

namespace annulus {
namespace {

View view_of(std::vector<float>& values) {
  return {values.data(), DType::float32, {static_cast<int64_t>(values.size())}};
}

TEST(ThreadsTransport, EveryRankHearsFromEveryOther) {
  run_as_threads(4, [](Transport& transport) {
    std::vector<float> own = {static_cast<float>(transport.rank()), 10.0F + static_cast<float>(transport.rank())};
    std::vector<std::vector<float>> heard(4, std::vector<float>(2, -1));
    std::vector<Message> sends, receives;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == transport.rank()) continue;
      sends.push_back({peer, view_of(own)});
      receives.push_back({peer, view_of(heard[static_cast<size_t>(peer)])});
    }
    transport.exchange(sends, receives, Channel::scalars, {}).wait({});
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == transport.rank()) continue;
      EXPECT_EQ(heard[static_cast<size_t>(peer)][0], static_cast<float>(peer));
      EXPECT_EQ(heard[static_cast<size_t>(peer)][1], 10.0F + static_cast<float>(peer));
    }
  });
}

TEST(ThreadsTransport, MessagesOfOneChannelKeepTheirOrderAndChannelsDoNotMix) {
  run_as_threads(2, [](Transport& transport) {
    std::vector<float> a = {1}, b = {2}, c = {3};
    if (transport.rank() == 0) {
      const std::array first = {Message{1, view_of(a)}};
      const std::array second = {Message{1, view_of(b)}};
      const std::array other = {Message{1, view_of(c)}};
      Request r1 = transport.exchange(first, {}, Channel::keys, {});
      Request r2 = transport.exchange(other, {}, Channel::gradients, {});
      Request r3 = transport.exchange(second, {}, Channel::keys, {});
      r1.wait({});
      r2.wait({});
      r3.wait({});
    } else {
      std::vector<float> x(1), y(1), z(1);
      const std::array gradient = {Message{0, view_of(z)}};
      const std::array keys = {Message{0, view_of(x)}, Message{0, view_of(y)}};
      transport.exchange({}, gradient, Channel::gradients, {}).wait({});
      transport.exchange({}, keys, Channel::keys, {}).wait({});
      EXPECT_EQ(x[0], 1);
      EXPECT_EQ(y[0], 2);
      EXPECT_EQ(z[0], 3);
    }
  });
}

TEST(ThreadsTransport, AFailingRankEndsTheOthersAndItsErrorIsTheOneReported) {
  try {
    run_as_threads(3, [](Transport& transport) {
      if (transport.rank() == 1) throw DataError("rank one's own trouble");
      transport.barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "rank one's own trouble");
  }
}

// However late it comes: unwinding may take a rank longer than others take to hear of it.
TEST(ThreadsTransport, TheErrorReportedIsNotThatOfARankWhichHeardOfIt) {
  std::atomic<bool> heard = false;
  try {
    run_as_threads(2, [&](Transport& transport) {
      if (transport.rank() == 0) {
        heard = true;
        throw ConnectionError("rank one has gone");
      }
      EXPECT_THROW(transport.barrier(), ConnectionError);
      EXPECT_TRUE(heard);
      throw DataError("rank one's own trouble");
    });
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "rank one's own trouble");
  }
}

TEST(ThreadsTransport, MessagesOfDifferentSizeAreAnError) {
  EXPECT_THROW(run_as_threads(2,
                              [](Transport& transport) {
                                std::vector<float> data(transport.rank() == 0 ? 2 : 3);
                                const std::array message = {Message{1 - transport.rank(), view_of(data)}};
                                if (transport.rank() == 0) {
                                  transport.exchange(message, {}, Channel::keys, {}).wait({});
                                } else {
                                  transport.exchange({}, message, Channel::keys, {}).wait({});
                                }
                              }),
               InternalError);
}

TEST(ThreadsTransport, NobodyLeavesTheBarrierBeforeAllHaveCome) {
  std::atomic<int> arrived = 0;
  run_as_threads(4, [&](Transport& transport) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      transport.barrier();
      EXPECT_GE(arrived.load(), 4 * round);
      transport.barrier();
    }
  });
}

}  // namespace
}  // namespace annulus
