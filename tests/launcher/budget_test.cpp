#include "launcher/budget.h"

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "launcher/machine_memory.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

// A plan that takes `bytes` of the device and `host` beside it.
RankPlan plan_of(int64_t bytes, int64_t host) {
  RankPlan plan;
  plan.memory.extent = bytes;
  plan.memory.stored.host = host;
  return plan;
}

PreparedRun run_on(DeviceKind device) {
  Settings settings;
  settings.data.sequence_length = 64;
  settings.runtime.device = device;
  return worst_case(settings, {.vocabulary = 256, .hidden = 8, .layers = 1, .layer_windows = {0}});
}

TEST(Budget, CannotPromiseMoreThanTheMachineHas) {
  const int64_t machine = machine_memory();
  const PreparedRun run = run_on(DeviceKind::cpu);
  EXPECT_NO_THROW(check_machine(plan_of(machine / 4, 0), run, 2));
  expect_says(message_of<MemoryError>([&] { check_machine(plan_of(machine / 4, 0), run, 4); }),
              {"4 ranks", std::to_string(machine), "runtime.memory_budget"});
}

TEST(Budget, CannotPromiseMoreBesideAGpuThanTheMachineHas) {
  const int64_t machine = machine_memory();
  const PreparedRun run = run_on(DeviceKind::cuda);
  EXPECT_NO_THROW(check_machine(plan_of(2 * machine, machine / 2), run, 2));
  expect_says(message_of<MemoryError>([&] { check_machine(plan_of(1, machine), run, 2); }), {"runtime.host_budget"});
}

}  // namespace
}  // namespace annulus
