// What leaves the device comes back as it was, in the order it was asked for, and a failure reaches whoever waits.
#include "kernels/file_storage.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/memory.h"
#include "kernels/error.h"
#include "tests/support/temporary_directory.h"

namespace annulus::cpu {
namespace {

View view_of(std::vector<float>& values) {
  return {values.data(), DType::float32, {static_cast<int64_t>(values.size())}};
}

std::vector<float> counted(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(FileStorage, GivesBackWhatItWasGiven) {
  const TemporaryDirectory folder;
  CpuMemory memory(false);
  FileStorage storage(folder.path(), 1 << 20, memory, make_host_access());
  const int64_t first = storage.reserve(4000), second = storage.reserve(400);
  std::vector<float> a = counted(1000, 1), b = counted(100, 7), c(1000), d(10);
  Transfer storing = storage.store(first, view_of(a), {});
  Transfer storing_too = storage.store(second, view_of(b), {});
  Transfer loading = storage.load(view_of(c), first, {});
  storage.load(view_of(d), second + 40, {}).wait({});
  loading.wait({});
  storing.wait({});
  storing_too.wait({});
  EXPECT_EQ(c, a);
  EXPECT_EQ(d, counted(10, 17));
}

TEST(FileStorage, BeginsWithZeros) {
  const TemporaryDirectory folder;
  CpuMemory memory(false);
  FileStorage storage(folder.path(), 4096, memory, make_host_access());
  const int64_t begin = storage.reserve(4096);
  std::vector<float> values(1024, 3.0F);
  storage.load(view_of(values), begin, {}).wait({});
  EXPECT_EQ(values, std::vector<float>(1024));
}

// One store after the other into the same place, each read back before the next is written, without waiting in between.
TEST(FileStorage, RunsTransfersInTheOrderOfTheirCalls) {
  const TemporaryDirectory folder;
  CpuMemory memory(false);
  FileStorage storage(folder.path(), 4096, memory, make_host_access());
  const int64_t begin = storage.reserve(4096);
  std::vector<std::vector<float>> stored, loaded;
  std::vector<Transfer> transfers;
  for (int i = 0; i < 50; ++i) {
    stored.push_back(counted(1024, static_cast<float>(i)));
    loaded.emplace_back(1024);
  }
  for (size_t i = 0; i < stored.size(); ++i) {
    transfers.push_back(storage.store(begin, view_of(stored[i]), {}));
    transfers.push_back(storage.load(view_of(loaded[i]), begin, {}));
  }
  for (Transfer& transfer : transfers) transfer.wait({});
  EXPECT_EQ(loaded, stored);
}

TEST(FileStorage, LeavesNothingInItsFolder) {
  const TemporaryDirectory folder;
  CpuMemory memory(false);
  const FileStorage storage(folder / "made" / "for it", 4096, memory, make_host_access());
  EXPECT_TRUE(std::filesystem::is_empty(folder / "made" / "for it"));
}

TEST(FileStorage, HoldsNoMoreThanPlanned) {
  const TemporaryDirectory folder;
  CpuMemory memory(false);
  FileStorage storage(folder.path(), 4096, memory, make_host_access());
  storage.reserve(4096);
  EXPECT_THROW(storage.reserve(1), InternalError);
  std::vector<float> values(2000);
  EXPECT_THROW(storage.store(0, view_of(values), {}), InternalError);
}

TEST(FileStorage, SaysWhereItCannotBe) {
  const TemporaryDirectory folder;
  CpuMemory memory(false);
  std::ofstream(folder / "file") << "in the way";
  expect_says(message_of<EnvironmentError>([&] { const FileStorage storage(folder / "file", 4096, memory, make_host_access()); }),
              {"memory.directory", "file"});
}

// Found out when it is made, not in the middle of a step.
TEST(FileStorage, IsRefusedWhereItHasNoRoom) {
  const TemporaryDirectory folder;
  CpuMemory memory(false);
  const auto too_much = static_cast<int64_t>(std::filesystem::space(folder.path()).capacity) + 1;
  expect_says(message_of<MemoryError>([&] { const FileStorage storage(folder.path(), too_much, memory, make_host_access()); }),
              {"memory.directory", folder.path().string(), std::to_string(too_much)});
}

}  // namespace
}  // namespace annulus::cpu
