#include "launcher/mpirun.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace annulus {
namespace {

using Words = std::vector<std::string>;

const Words typed = {"annulus", "train", "a.yaml", "--ranks", "3"};

TEST(MpirunCommand, StartsTheSameCommandOnEveryRank) {
  EXPECT_EQ(mpirun_command(3, {}, "/bin/annulus", typed),
            (Words{"mpirun", "-np", "3", "--bind-to", "none", "--oversubscribe", "/bin/annulus", "train", "a.yaml",
                   "--ranks", "3"}));
}

TEST(MpirunCommand, AllowsRootOnlyForRoot) {
  const auto allows = [](bool root) {
    const Words command = mpirun_command(2, {.root = root}, "annulus", typed);
    return std::ranges::count(command, "--allow-run-as-root") == 1;
  };
  EXPECT_TRUE(allows(true));
  EXPECT_FALSE(allows(false));
}

TEST(MpirunCommand, TurnsSingleCopyOffWhereTheKernelForbidsIt) {
  const Words command = mpirun_command(2, {.single_copy = false}, "annulus", typed);
  const auto found = std::ranges::find(command, "btl_vader_single_copy_mechanism");
  ASSERT_NE(found, command.end());
  EXPECT_EQ(*(found - 1), "--mca");
  EXPECT_EQ(*(found + 1), "none");
}

}  // namespace
}  // namespace annulus
