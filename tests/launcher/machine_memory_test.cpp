#include "launcher/machine_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

// A system's files, in a folder of their own.
class MachineMemory : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) { root_.write(file, text); }
  [[nodiscard]] int64_t bytes() const { return machine_memory(root_.path()); }

 private:
  TemporaryDirectory root_;
};

TEST_F(MachineMemory, IsThatOfTheMachineWhereNothingLimitsIt) {
  const int64_t all = bytes();
  EXPECT_GT(all, int64_t{64} << 20);
  write("proc/self/cgroup", "0::/user.slice/job\n");
  write("sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  EXPECT_EQ(bytes(), all);
}

TEST_F(MachineMemory, IsTheLeastLimitOfTheGroupsAProcessIsIn) {
  write("proc/self/cgroup", "0::/user.slice/job\n");
  write("sys/fs/cgroup/user.slice/job/memory.max", "40000000\n");
  EXPECT_EQ(bytes(), 40'000'000);
  write("sys/fs/cgroup/user.slice/memory.max", "30000000\n");
  EXPECT_EQ(bytes(), 30'000'000);
}

TEST_F(MachineMemory, IsAContainersWhoseGroupHasAnotherPathInside) {
  write("proc/self/cgroup", "0::/docker/1234\n");
  write("sys/fs/cgroup/memory.max", "20000000\n");
  EXPECT_EQ(bytes(), 20'000'000);
}

TEST_F(MachineMemory, IsLimitedByTheFirstVersionOfControlGroupsToo) {
  write("proc/self/cgroup", "9:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\nnonsense\n0::/\n");
  write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "10000000\n");
  write("sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1\n");
  EXPECT_EQ(bytes(), 10'000'000);
}

}  // namespace
}  // namespace annulus
