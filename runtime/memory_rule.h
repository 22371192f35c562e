// How much of forward is kept for backward, and how many rows at a time go through the widest parts. Every rule gives
// the same numbers; they differ in memory and in what is computed twice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "runtime/model_config.h"
#include "runtime/settings.h"

namespace annulus {

struct MemoryRule {
  Recompute recompute = Recompute::none;
  int64_t mlp_rows = 0;     // through the MLP; fewer than all: what lies between its products is computed again
  int64_t logits_rows = 0;  // through head and loss

  [[nodiscard]] bool keeps_work() const { return recompute == Recompute::none; }
  [[nodiscard]] bool keeps_attention() const { return recompute != Recompute::layer; }
  [[nodiscard]] std::string to_string() const;  // "memory.recompute=layer memory.mlp_tile=4096 ..."
  friend bool operator==(const MemoryRule&, const MemoryRule&) = default;
};

// The rules to try, cheapest in computation first: what the settings fix, and for what they
// leave to us each rung of the ladder that docs/memory.md describes.
std::vector<MemoryRule> memory_ladder(const Settings& settings, const ModelConfig& model, const Mesh& mesh);

}  // namespace annulus
