// What a run needs, known before it starts: the trainer itself, run on a device without memory and ranks that are not there.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/memory_plan.h"
#include "kernels/plan/plan_device.h"
#include "parallel/mesh.h"
#include "runtime/model_config.h"
#include "runtime/settings.h"

namespace annulus {

// One rank's needs, for the mask's worst case: every sequence a single document.
struct RankPlan {
  MemoryPlan memory;                   // over the whole run
  FloatingPointOperations operations;  // of a step
  int64_t ring_bytes = 0;              // sent in a step: keys, values and their gradients
  int64_t parameter_bytes = 0;         // sent in a step: weights and gradients
};

// Reads neither weights nor data. `workspace` says what the device's operations take.
RankPlan plan_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh,
                   std::unique_ptr<WorkspaceSizes> workspace);

}  // namespace annulus
