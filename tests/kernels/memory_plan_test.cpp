#include "kernels/memory_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/file_storage.h"
#include "kernels/error.h"
#include "kernels/plan/recording_memory.h"

#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

// What a random run allocates and releases: some things for good, then a step of nested and overlapping lifetimes.
MemoryPlan random_plan(uint32_t seed) {
  std::mt19937 random(seed);
  RecordingMemory memory(false);
  std::vector<Allocation> kept, live;
  for (int i = 0; i < 5; ++i) kept.emplace_back(memory, 1 + random() % 5000, Purpose::parameters);
  memory.enter(Section::step);
  for (int i = 0; i < 200; ++i) {
    if (!live.empty() && random() % 2 == 0) {
      live.erase(live.begin() + random() % live.size());
    } else {
      live.emplace_back(memory, 1 + random() % 100'000, Purpose::attention);
    }
    if (random() % 3 == 0) const Allocation used(memory, random() % 9000, Purpose::workspace);
  }
  live.clear();
  MemoryPlan plan = memory.recorded();
  place(plan);
  return plan;
}

TEST(MemoryPlan, NothingThatLivesAtTheSameTimeOverlaps) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const MemoryPlan plan = random_plan(seed);
    std::vector<PlannedAllocation> all = {plan.workspace};
    for (const auto& section : plan.sections) all.insert(all.end(), section.begin(), section.end());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_LE(all[i].offset + all[i].bytes, plan.extent);
      for (size_t j = 0; j < i; ++j) {
        const bool together = all[i].begin < all[j].end && all[j].begin < all[i].end;
        const bool apart =
            all[i].offset + all[i].bytes <= all[j].offset || all[j].offset + all[j].bytes <= all[i].offset;
        EXPECT_TRUE(!together || apart);
      }
    }
    EXPECT_GE(plan.extent, plan.peak_bytes);
  }
}

TEST(MemoryPlan, SaysWhatThePeakConsistsOf) {
  RecordingMemory memory(false);
  const Allocation weights(memory, 1000, Purpose::parameters);
  memory.enter(Section::step);
  {
    const Allocation small(memory, 64, Purpose::mlp);
    const Allocation large(memory, 640, Purpose::attention);
  }
  { const Allocation later(memory, 128, Purpose::logits); }
  MemoryPlan plan = memory.recorded();
  place(plan);
  const auto bytes = plan.bytes_at_peak();
  EXPECT_EQ(plan.peak_bytes, 1024 + 64 + 640);
  EXPECT_EQ(plan.extent, plan.peak_bytes);
  EXPECT_EQ(bytes[static_cast<size_t>(Purpose::parameters)], 1024);
  EXPECT_EQ(bytes[static_cast<size_t>(Purpose::attention)], 640);
  EXPECT_EQ(bytes[static_cast<size_t>(Purpose::logits)], 0);
}

// A plan of one buffer that stays and one of a step.
MemoryPlan two_buffers(bool red_zones) {
  RecordingMemory memory(red_zones);
  const Allocation stays(memory, 100, Purpose::parameters);
  memory.enter(Section::step);
  { const Allocation step(memory, 200, Purpose::mlp); }
  { const Allocation work(memory, 50, Purpose::workspace); }
  MemoryPlan plan = memory.recorded();
  place(plan);
  return plan;
}

TEST(CpuArena, GivesEveryStepTheSamePlaces) {
  cpu::CpuArena arena(two_buffers(false), false);
  const Allocation stays(arena, 100, Purpose::parameters);
  void* first = nullptr;
  for (int step = 0; step < 3; ++step) {
    arena.enter(Section::step);
    const Allocation buffer(arena, 200, Purpose::mlp);
    if (step == 0) first = buffer.data();
    EXPECT_EQ(buffer.data(), first);
  }
  EXPECT_EQ(arena.live_bytes(), 128);
  EXPECT_EQ(arena.peak_bytes(), 128 + 256 + 64);
}

TEST(CpuArena, RefusesWhatWasNotPlanned) {
  cpu::CpuArena arena(two_buffers(false), false);
  EXPECT_THROW(Allocation(arena, 101 + 64, Purpose::parameters), InternalError);  // larger
  cpu::CpuArena other(two_buffers(false), false);
  EXPECT_THROW(Allocation(other, 100, Purpose::mlp), InternalError);  // for something else
  cpu::CpuArena third(two_buffers(false), false);
  const Allocation stays(third, 100, Purpose::parameters);
  EXPECT_THROW(Allocation(third, 100, Purpose::parameters), InternalError);  // once too often
  EXPECT_THROW(Allocation(third, 100, Purpose::workspace), InternalError);   // more workspace
}

TEST(CpuArena, NoticesAWriteBehindABuffer) {
  cpu::CpuArena arena(two_buffers(true), true);
  const Allocation stays(arena, 100, Purpose::parameters);
  arena.enter(Section::step);
  {
    const Allocation buffer(arena, 200, Purpose::mlp);
    static_cast<char*>(buffer.data())[200] = 0;
  }
  EXPECT_THROW(arena.enter(Section::step), InternalError);
}

// Whatever the plan puts there next would meet a copy of the buffer before.
TEST(CpuArena, NoticesWhatIsReleasedWhileACopyUsesIt) {
  const TemporaryDirectory folder;
  for (const bool waits : {true, false}) {
    cpu::CpuArena arena(two_buffers(true), true);
    cpu::FileStorage storage(folder.path(), 4096, arena);
    const Allocation stays(arena, 100, Purpose::parameters);
    arena.enter(Section::step);
    const int64_t offset = storage.reserve(200);
    {
      const Allocation buffer(arena, 200, Purpose::mlp);
      Transfer transfer = storage.store(offset, {buffer.data(), DType::float32, {50}}, {});
      if (waits) transfer.wait({});
    }
    if (waits) {
      EXPECT_NO_THROW(arena.enter(Section::step));
    } else {
      expect_says(message_of<InternalError>([&] { arena.enter(Section::step); }), {"under way", "mlp"});
    }
  }
}

TEST(CpuArena, FillsWhatIsReleasedWithNaN) {
  cpu::CpuArena arena(two_buffers(true), true);
  const Allocation stays(arena, 100, Purpose::parameters);
  arena.enter(Section::step);
  const float* values = nullptr;
  {
    const Allocation buffer(arena, 200, Purpose::mlp);
    values = static_cast<const float*>(buffer.data());
    EXPECT_TRUE(std::isnan(values[3]));
    static_cast<float*>(buffer.data())[3] = 1;
  }
  EXPECT_TRUE(std::isnan(values[3]));
}

}  // namespace
}  // namespace annulus
