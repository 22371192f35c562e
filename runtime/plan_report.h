// A plan as people and programs read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/outside.h"
#include "runtime/plan.h"
#include "runtime/plan_length.h"

namespace annulus {

struct PlanRequest {
  Settings settings;
  int ranks = 1;
  int threads = 1;  // of the CPU device
  Budget budget;    // of a rank
  // Work and traffic of data.train's first step, as it is packed, instead of the worst case. The memory is the worst
  // case's either way.
  bool data = false;
};

// What could be chosen, and what it would need.
struct PlanOption {
  std::string settings;  // words of section.key=value, and --ranks where there are more
  bool allowed = true;   // by the configuration and the number of ranks, as they are
  RungPlan plan;
};

// A step on all ranks together.
struct PackedStep {
  StepCost total;
  StepCost most;     // that a rank has of each
  StepCost busiest;  // of the rank with most attention
  int busiest_rank = 0;
};

struct PlanReport {
  int ranks = 1;
  Budget budget;
  std::vector<PlanOption> options;  // the ladder; what the configuration excludes; twice the ranks
  size_t chosen = 0;                // the first that is allowed and fits, or the last that is allowed
  LongestSequence longest;
  Outside outside;  // of a rank
  std::optional<PackedStep> data;

  [[nodiscard]] const RungPlan& plan() const { return options[chosen].plan; }
  [[nodiscard]] bool fits() const { return plan().worst.fits(budget); }
};

// Throws what reading the model's configuration throws, and with `data` what opening data.train throws.
PlanReport plan_run(const PlanRequest& request);

std::string as_table(const PlanReport& report);
std::string as_json(const PlanReport& report);  // one object; docs/memory.md names its keys

}  // namespace annulus
