#include "kernels/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/error.h"
#include "kernels/plan/recording_memory.h"
#include "tests/support/live_together.h"

namespace annulus {
namespace {

bool apart(const PlannedAllocation& a, const PlannedAllocation& b) {
  return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
}

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
        EXPECT_TRUE(!live_together(all[i], all[j]) || apart(all[i], all[j]));
      }
    }
    EXPECT_GE(plan.extent, plan.peak_bytes);
  }
}

// A message of one micro-batch is still under way when the next one begins.
TEST(MemoryPlan, LeavesAPlaceAloneThatIsStillInUseWhenItsSectionIsEnteredAgain) {
  RecordingMemory memory(false);
  Allocation message;
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    memory.enter(Section::micro_batch);
    { const Allocation first(memory, 640, Purpose::attention); }
    message = {};
    { const Allocation second(memory, 640, Purpose::mlp); }
    message = Allocation(memory, 64, Purpose::communication);
  }
  memory.enter(Section::update);
  const Allocation last(memory, 128, Purpose::optimizer);
  message = {};
  MemoryPlan plan = memory.recorded();
  place(plan);
  const auto& parts = plan.sections[static_cast<size_t>(Section::micro_batch)];
  ASSERT_EQ(parts.size(), 3);
  const PlannedAllocation &first = parts[0], &second = parts[1], &sent = parts[2];
  for (const PlannedAllocation& part : parts) EXPECT_EQ(part.lives.size(), 3);
  EXPECT_TRUE(live_together(sent, first));
  EXPECT_TRUE(apart(sent, first));
  EXPECT_FALSE(live_together(sent, second));
  EXPECT_TRUE(apart(sent, plan.sections[static_cast<size_t>(Section::update)][0]));
  EXPECT_EQ(plan.peak_bytes, 640 + 64);
  EXPECT_EQ(plan.extent, plan.peak_bytes);
}

TEST(MemoryPlan, IsNoneWhereASectionEnteredAgainAsksForSomethingElse) {
  RecordingMemory memory(false);
  memory.enter(Section::micro_batch);
  Allocation kept(memory, 64, Purpose::mlp);
  memory.enter(Section::micro_batch);
  EXPECT_THROW(Allocation(memory, 64, Purpose::mlp), InternalError);  // what is still in use
  kept = {};
  memory.enter(Section::micro_batch);
  EXPECT_THROW(Allocation(memory, 65, Purpose::mlp), InternalError);  // more
  memory.enter(Section::micro_batch);
  EXPECT_THROW(Allocation(memory, 64, Purpose::logits), InternalError);  // for something else
  memory.enter(Section::micro_batch);
  { const Allocation same(memory, 64, Purpose::mlp); }
  EXPECT_THROW(Allocation(memory, 64, Purpose::mlp), InternalError);  // once too often
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
