// How much of forward is kept for backward, how many rows at a time go through the widest parts, and what waits outside
// the device's memory until it is needed. Every rule gives the same numbers; they differ in memory, in what is computed
// twice, and in what is copied to and fro.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/sharded_parameters.h"
#include "runtime/model_config.h"
#include "runtime/settings.h"

namespace annulus {

struct MemoryRule {
  Recompute recompute = Recompute::none;
  int64_t mlp_rows = 0;     // through the MLP; fewer than all: what lies between its products is computed again
  int64_t logits_rows = 0;  // through head and loss
  Place checkpoints = Place::device;
  ParameterPlaces parameters;

  [[nodiscard]] bool keeps_work() const { return recompute == Recompute::none; }
  [[nodiscard]] bool keeps_attention() const { return recompute != Recompute::layer; }
  [[nodiscard]] bool uses(Place place) const;
  [[nodiscard]] std::string to_string() const;  // "memory.recompute=layer memory.mlp_tile=4096 ..."
  friend bool operator==(const MemoryRule&, const MemoryRule&) = default;
};

// The rules to try, cheapest first: what the settings fix, and for what they leave to us each rung of the ladder that
// docs/memory.md describes. ConfigurationError where the settings ask for the host's memory and the device is the CPU.
std::vector<MemoryRule> memory_ladder(const Settings& settings, const ModelConfig& model, const Mesh& mesh);

}  // namespace annulus
