#include "launcher/agreement.h"

#include <gtest/gtest.h>

#include <atomic>

#include "kernels/error.h"
#include "parallel/transports.h"

namespace annulus {
namespace {

TEST(Agreement, FindsTheSmallestOnEveryRank) {
  run_as_threads(3, [](Transport& transport) {
    EXPECT_EQ(smallest_of_all(int64_t{1} << (40 - transport.rank()), transport), int64_t{1} << 38);
  });
}

TEST(Agreement, PassesWhereAllSayTheSame) {
  run_as_threads(3, [](Transport& transport) { EXPECT_NO_THROW(require_agreement("all alike", transport)); });
}

TEST(Agreement, TellsEveryRankWhoIsDifferent) {
  std::atomic<int> told = 0;
  run_as_threads(4, [&](Transport& transport) {
    try {
      require_agreement(transport.rank() % 2 == 1 ? "learning rate 0.1" : "learning rate 0.2", transport);
    } catch (const ConfigurationError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1, 3 has other settings"), std::string::npos) << error.what();
      ++told;
    }
  });
  EXPECT_EQ(told, 4);
}

}  // namespace
}  // namespace annulus
