// What a run needs, known before it starts: the trainer itself, run on a device without memory and ranks that are not
// there.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/memory_plan.h"
#include "kernels/plan/plan_device.h"
#include "parallel/mesh.h"
#include "runtime/memory_rule.h"
#include "runtime/model_config.h"
#include "runtime/run.h"
#include "runtime/settings.h"

namespace annulus {

// What a rank may take. Bytes.
struct Budget {
  int64_t memory = std::numeric_limits<int64_t>::max();  // of the device
  int64_t host = std::numeric_limits<int64_t>::max();    // of the host, beside a GPU
  int64_t disk = std::numeric_limits<int64_t>::max();    // in memory.directory
};

// What a rank computes and moves in a step.
struct StepCost {
  FloatingPointOperations operations;
  int64_t ring_bytes = 0;          // sent: keys, values and their gradients
  int64_t parameter_bytes = 0;     // sent: weights and gradients
  int64_t host_traffic_bytes = 0;  // between the device and the host's memory, both ways together
  int64_t disk_traffic_bytes = 0;  // and between the device and the disk

  void raise_to(const StepCost& other);  // of each figure the larger one
  void add(const StepCost& other, int64_t times = 1);

 private:
  template <class Join>
  void join(const StepCost& other, const Join& join);
};

// When a rank's memory is fullest: what it does then, and the allocation that makes it so.
struct PeakMoment {
  Phase phase = Phase::load;
  Purpose purpose = Purpose::workspace;
  int64_t bytes = 0;
};

struct RankPlan {
  int rank = 0;
  MemoryRule rule;
  MemoryPlan memory;  // over the whole run, placed
  PeakMoment peak;
  StepCost step;

  [[nodiscard]] bool fits(const Budget& budget) const {
    return memory.extent <= budget.memory && memory.stored.host <= budget.host && memory.stored.disk <= budget.disk;
  }
};

// The run with the mask that sees most: every sequence one document. Reads neither weights nor data; mesh and rule are
// to be chosen.
PreparedRun worst_case(const Settings& settings, const ModelConfig& model);

// The run's rank under its rule, where all sequences are alike. `threads`: of the CPU device.
RankPlan plan_rank(PreparedRun& run, int threads);

// What it computes and moves in its first step, whatever the sequences.
StepCost cost_of_step(PreparedRun& run, int threads);

// The plan of mesh.rank under the first rule of the ladder with which every rank stays within `budget`; all ranks find
// the same. MemoryError, with what is largest and what would help, where none does.
RankPlan fit_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads,
                  const Budget& budget);

// All ranks under one rule.
struct RungPlan {
  RankPlan worst;  // the first of those with the largest memory
  StepCost step;   // the most that a rank has of each

  [[nodiscard]] const MemoryRule& rule() const { return worst.rule; }
};

// One rank of each kind that can differ in what it allocates, in order: the first receives what is saved, the last of a
// sequence may hold one chunk where the others hold two.
std::vector<int> kinds_of_ranks(const Mesh& mesh);

// Of the run's mesh and rule.
RungPlan plan_rung(PreparedRun& run, int threads);

// Every rule of the ladder, in order.
std::vector<RungPlan> plan_ladder(PreparedRun& run, int threads);

}  // namespace annulus
