// What a run needs, known before it starts: the trainer itself, run on a device without memory and ranks that are not
// there.
#pragma once

#include <cstdint>

#include "kernels/memory_plan.h"
#include "kernels/plan/plan_device.h"
#include "parallel/mesh.h"
#include "runtime/memory_rule.h"
#include "runtime/model_config.h"
#include "runtime/settings.h"

namespace annulus {

// One rank's needs, for the mask's worst case: every sequence a single document.
struct RankPlan {
  MemoryRule rule;
  MemoryPlan memory;                   // over the whole run
  FloatingPointOperations operations;  // of a step
  int64_t ring_bytes = 0;              // sent in a step: keys, values and their gradients
  int64_t parameter_bytes = 0;         // sent in a step: weights and gradients
};

// Reads neither weights nor data. `threads`: of the CPU device.
RankPlan plan_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh, const MemoryRule& rule,
                   int threads);

// The plan of mesh.rank under the first rule of the ladder with which every rank stays within `budget` bytes; all ranks
// find the same. MemoryError, with what is largest and what would help, where none does.
RankPlan fit_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads, int64_t budget);

// The rules of the ladder with what each needs on the worst rank, in order.
struct RungPlan {
  MemoryRule rule;
  int64_t peak_bytes = 0;
  FloatingPointOperations operations;
};
std::vector<RungPlan> plan_ladder(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads);

}  // namespace annulus
