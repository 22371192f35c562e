#include "runtime/memory_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "parallel/sequence_layout.h"

namespace annulus {
namespace {

// Rows of logits by default: large enough for full speed in the products, small enough not to show in the memory.
int64_t default_logits_rows(int64_t rows, int64_t vocabulary) {
  constexpr int64_t elements = int64_t{1} << 24;
  return std::min(rows, std::max<int64_t>(64, elements / vocabulary));
}

const char* name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::keep_attention:
      return "keep_attention";
    case Recompute::layer:
      return "layer";
  }
  throw InternalError("a kind of recomputation without a name");
}

}  // namespace

std::string MemoryRule::to_string() const {
  return fmt::format("memory.recompute={} memory.mlp_tile={} memory.logits_tile={}", name_of(recompute), mlp_rows,
                     logits_rows);
}

std::vector<MemoryRule> memory_ladder(const Settings& settings, const ModelConfig& model, const Mesh& mesh) {
  struct Rung {
    Recompute recompute;
    int64_t mlp_rows;  // 0: all
  };
  constexpr std::array rungs = {Rung{Recompute::none, 0},           Rung{Recompute::none, 4096},
                                Rung{Recompute::keep_attention, 0}, Rung{Recompute::keep_attention, 4096},
                                Rung{Recompute::layer, 4096},       Rung{Recompute::layer, 1024}};
  const SequenceLayout layout(settings.parallel.layout, mesh.context_size, settings.train.micro_batch_size,
                              settings.data.sequence_length);
  const int64_t rows = layout.local_rows();
  const MemorySettings& memory = settings.memory;
  const auto rows_or_all = [&](int64_t tile) { return tile == 0 ? rows : std::min(rows, tile); };
  std::vector<MemoryRule> ladder;
  for (const Rung& rung : rungs) {
    const MemoryRule rule = {.recompute = memory.recompute.value_or(rung.recompute),
                             .mlp_rows = rows_or_all(memory.mlp_tile.value_or(rung.mlp_rows)),
                             .logits_rows = memory.logits_tile ? rows_or_all(*memory.logits_tile)
                                                               : default_logits_rows(rows, model.vocabulary)};
    if (std::ranges::find(ladder, rule) == ladder.end()) ladder.push_back(rule);
  }
  return ladder;
}

}  // namespace annulus
