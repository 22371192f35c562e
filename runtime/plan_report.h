// A plan as people and programs read it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan.h"

namespace annulus {

// What the run needs on its worst rank.
struct PlanReport {
  Settings settings;
  ModelConfig model;
  Mesh mesh;
  RankPlan worst;
};

// Plans every distinct shape of rank: rank 0, which also saves, and the others.
PlanReport plan_run(const Settings& settings, int ranks, int threads);

std::string as_table(const PlanReport& report);
std::string as_json(const PlanReport& report);  // one object; docs/memory.md names its keys

}  // namespace annulus
