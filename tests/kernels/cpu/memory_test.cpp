#include "kernels/cpu/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "kernels/error.h"

namespace annulus::cpu {
namespace {

TEST(CpuMemory, CountsLiveAndPeakBytesRoundedUpTo64) {
  CpuMemory memory(false);
  {
    const Allocation a(memory, 1, Purpose::mlp);
    EXPECT_EQ(memory.live_bytes(), 64);
    {
      const Allocation b(memory, 65, Purpose::logits);
      EXPECT_EQ(memory.live_bytes(), 192);
    }
    const Allocation c(memory, 64, Purpose::logits);
    EXPECT_EQ(memory.live_bytes(), 128);
  }
  EXPECT_EQ(memory.live_bytes(), 0);
  EXPECT_EQ(memory.peak_bytes(), 192);
}

TEST(CpuMemory, AlignsTo64Bytes) {
  CpuMemory memory(false);
  for (const int64_t bytes : {1, 63, 64, 1000, 1'000'000}) {
    const Allocation allocation(memory, bytes, Purpose::workspace);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(allocation.data()) % 64, 0U) << bytes;
  }
}

TEST(CpuMemory, CountsNothingForNothing) {
  CpuMemory memory(true);
  const Allocation nothing(memory, 0, Purpose::workspace);
  EXPECT_EQ(memory.live_bytes(), 0);
}

TEST(CpuMemory, FillsWithNaNWhenAskedTo) {
  CpuMemory memory(true);
  const Allocation allocation(memory, 256, Purpose::workspace);
  for (int i = 0; i < 64; ++i) {
    const float number = static_cast<const float*>(allocation.data())[i];
    EXPECT_TRUE(number != number);
    EXPECT_EQ(static_cast<const int32_t*>(allocation.data())[i], -1);
  }
}

TEST(CpuMemory, SaysWhatDoesNotFit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator ends the process instead";
#endif
  CpuMemory memory(false);
  try {
    memory.allocate(int64_t{1} << 60, Purpose::checkpoints);
    FAIL() << "an exbibyte was allocated";
  } catch (const MemoryError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("1152921504606846976 bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("checkpoints"), std::string::npos) << message;
    EXPECT_EQ(error.code(), ExitCode::memory);
  }
  EXPECT_EQ(memory.live_bytes(), 0);
}

TEST(Purpose, HasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < purpose_count; ++i) names.insert(name_of(static_cast<Purpose>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(purpose_count));
}

}  // namespace
}  // namespace annulus::cpu
