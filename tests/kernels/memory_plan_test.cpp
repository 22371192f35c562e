#include "kernels/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/error.h"
#include "kernels/plan/recording_memory.h"

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

}  // namespace
}  // namespace annulus
