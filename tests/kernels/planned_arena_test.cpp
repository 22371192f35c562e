// The arena of every device.
#include "kernels/planned_arena.h"

#include "kernels/plan/recording_memory.h"
#include "tests/kernels/devices.h"

namespace annulus::testing {
namespace {

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

TEST(PlannedArena, GivesEveryStepTheSamePlaces) {
  const auto arena_device = make_planned_device(two_buffers(false), false);
  Memory& arena = arena_device->memory();
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

TEST(PlannedArena, RefusesWhatWasNotPlanned) {
  const auto arena_device = make_planned_device(two_buffers(false), false);
  Memory& arena = arena_device->memory();
  EXPECT_THROW(Allocation(arena, 101 + 64, Purpose::parameters), InternalError);  // larger
  const auto other_device = make_planned_device(two_buffers(false), false);
  Memory& other = other_device->memory();
  EXPECT_THROW(Allocation(other, 100, Purpose::mlp), InternalError);  // for something else
  const auto third_device = make_planned_device(two_buffers(false), false);
  Memory& third = third_device->memory();
  const Allocation stays(third, 100, Purpose::parameters);
  EXPECT_THROW(Allocation(third, 100, Purpose::parameters), InternalError);  // once too often
  EXPECT_THROW(Allocation(third, 100, Purpose::workspace), InternalError);   // more workspace
}

// Four bytes of a buffer, from `offset` on.
View word(const Allocation& buffer, int64_t offset) {
  return {static_cast<char*>(buffer.data()) + offset, DType::float32, {1}};
}

TEST(PlannedArena, NoticesAWriteBehindABuffer) {
  const auto device = make_planned_device(two_buffers(true), true);
  const Allocation stays(device->memory(), 100, Purpose::parameters);
  device->memory().enter(Section::step);
  {
    const Allocation buffer(device->memory(), 200, Purpose::mlp);
    set_numbers(*device, word(buffer, 200), {0});
  }
  EXPECT_THROW(device->memory().enter(Section::step), InternalError);
}

// Whatever the plan puts there next would meet a copy of the buffer before.
TEST(PlannedArena, NoticesWhatIsReleasedWhileACopyUsesIt) {
  for (const bool waits : {true, false}) {
    const auto device = make_planned_device(two_buffers(true), true);
    Memory& arena = device->memory();
    const Allocation stays(arena, 100, Purpose::parameters);
    arena.enter(Section::step);
    {
      const Allocation buffer(arena, 200, Purpose::mlp);
      const View part = word(buffer, 100);
      arena.hold(part.data(), part.bytes());
      if (waits) arena.let_go(part.data(), part.bytes());
    }
    if (waits) {
      EXPECT_NO_THROW(arena.enter(Section::step));
    } else {
      EXPECT_THROW(arena.enter(Section::step), InternalError);
    }
  }
}

TEST(PlannedArena, FillsWhatIsLentAndReleasedWithNaN) {
  const auto device = make_planned_device(two_buffers(true), true);
  const Allocation stays(device->memory(), 100, Purpose::parameters);
  device->memory().enter(Section::step);
  View third;
  {
    const Allocation buffer(device->memory(), 200, Purpose::mlp);
    third = word(buffer, 12);
    EXPECT_TRUE(std::isnan(number_of(*device, third)));
    set_numbers(*device, third, {1});
  }
  EXPECT_TRUE(std::isnan(number_of(*device, third)));
}

}  // namespace
}  // namespace annulus::testing
