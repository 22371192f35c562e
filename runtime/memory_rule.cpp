#include "runtime/memory_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

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

const char* name_of(Place place) {
  switch (place) {
    case Place::device:
      return "none";
    case Place::host:
      return "host";
    case Place::disk:
      return "disk";
  }
  throw InternalError("a place without a name");
}

struct Rung {
  Recompute recompute;
  int64_t mlp_rows;  // 0: all
  Place checkpoints = Place::device, optimizer = Place::device, gradients = Place::device, parameters = Place::device;
};

// First what only costs computation, then what the most useful copies buy: optimiser state is touched once a step,
// gradients once a micro-batch, checkpoints and weights twice. Beside a GPU the host's memory comes before attention is
// computed twice, since it is the quicker of the two; the disk always comes last.
std::vector<Rung> rungs_of(DeviceKind device) {
  constexpr auto host = Place::host, disk = Place::disk, none = Place::device;
  constexpr auto keep = Recompute::keep_attention, layer = Recompute::layer;
  std::vector<Rung> rungs = {{Recompute::none, 0}, {Recompute::none, 4096}, {keep, 0}, {keep, 4096}};
  if (device == DeviceKind::cuda) {
    rungs.insert(rungs.end(), {{keep, 4096, none, host},
                               {keep, 4096, none, host, host},
                               {keep, 4096, host, host, host},
                               {layer, 1024, host, host, host},
                               {layer, 1024, host, host, host, host},
                               {layer, 1024, host, disk, host, host},
                               {layer, 1024, host, disk, disk, host},
                               {layer, 1024, host, disk, disk, disk},
                               {layer, 1024, disk, disk, disk, disk}});
  } else {
    rungs.insert(rungs.end(), {{layer, 4096},
                               {layer, 1024},
                               {layer, 1024, none, disk},
                               {layer, 1024, none, disk, disk},
                               {keep, 1024, disk, disk, disk},
                               {keep, 1024, disk, disk, disk, disk},
                               {layer, 1024, disk, disk, disk, disk}});
  }
  return rungs;
}

void check_places(const Settings& settings) {
  if (settings.runtime.device == DeviceKind::cuda) return;
  const MemorySettings& memory = settings.memory;
  const std::pair<const char*, std::optional<Place>> places[] = {{"checkpoints", memory.offload_checkpoints},
                                                                 {"gradients", memory.offload_gradients},
                                                                 {"optimizer", memory.offload_optimizer},
                                                                 {"parameters", memory.offload_parameters}};
  for (const auto& [name, place] : places) {
    if (place != Place::host) continue;
    throw ConfigurationError(
        fmt::format("memory.offload_{} is 'host', which takes tensors from a GPU's memory into the host's; on the CPU "
                    "that is the same memory, so use disk or none",
                    name));
  }
}

}  // namespace

bool MemoryRule::uses(Place place) const {
  return checkpoints == place || parameters.weights == place || parameters.gradients == place ||
         parameters.optimizer == place;
}

std::string MemoryRule::to_string() const {
  std::string text = fmt::format("memory.recompute={} memory.mlp_tile={} memory.logits_tile={}", name_of(recompute),
                                 mlp_rows, logits_rows);
  const auto add = [&](const char* name, Place place) {
    if (place != Place::device) text += fmt::format(" memory.offload_{}={}", name, name_of(place));
  };
  add("checkpoints", checkpoints);
  add("gradients", parameters.gradients);
  add("optimizer", parameters.optimizer);
  add("parameters", parameters.weights);
  return text;
}

std::vector<MemoryRule> memory_ladder(const Settings& settings, const ModelConfig& model, const Mesh& mesh) {
  check_places(settings);
  const SequenceLayout layout(settings.parallel.layout, mesh.context_size, settings.train.micro_batch_size,
                              settings.data.sequence_length);
  const int64_t rows = layout.local_rows();
  const MemorySettings& memory = settings.memory;
  const auto rows_or_all = [&](int64_t tile) { return tile == 0 ? rows : std::min(rows, tile); };
  std::vector<MemoryRule> ladder;
  for (const Rung& rung : rungs_of(settings.runtime.device)) {
    const MemoryRule rule = {.recompute = memory.recompute.value_or(rung.recompute),
                             .mlp_rows = rows_or_all(memory.mlp_tile.value_or(rung.mlp_rows)),
                             .logits_rows = memory.logits_tile ? rows_or_all(*memory.logits_tile)
                                                               : default_logits_rows(rows, model.vocabulary),
                             .checkpoints = memory.offload_checkpoints.value_or(rung.checkpoints),
                             .parameters = {.weights = memory.offload_parameters.value_or(rung.parameters),
                                            .gradients = memory.offload_gradients.value_or(rung.gradients),
                                            .optimizer = memory.offload_optimizer.value_or(rung.optimizer)}};
    if (std::ranges::find(ladder, rule) == ladder.end()) ladder.push_back(rule);
  }
  return ladder;
}

}  // namespace annulus
