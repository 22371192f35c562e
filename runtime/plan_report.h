// A plan as people and programs read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan.h"

namespace annulus {

// What the run needs on its worst rank, rank 0, which also receives what is saved.
struct PlanReport {
  int ranks = 1;
  int64_t budget = 0;            // bytes a rank may use
  RankPlan worst;                // under the first rule that fits, or the last if none does
  std::vector<RungPlan> ladder;  // what each rule would need
  [[nodiscard]] bool fits() const { return worst.memory.extent <= budget; }
};

PlanReport plan_run(const Settings& settings, int ranks, int threads, int64_t budget);

std::string as_table(const PlanReport& report);
std::string as_json(const PlanReport& report);  // one object; docs/memory.md names its keys

}  // namespace annulus
