// A training run as the launcher sees it: everything is checked by prepare(), then train() does it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "parallel/mesh.h"
#include "parallel/transport.h"
#include "runtime/data/sequences.h"
#include "runtime/memory_rule.h"
#include "runtime/model_config.h"
#include "runtime/settings.h"

namespace annulus {

// A run whose settings, model files and data have been checked and opened. Nothing large is allocated yet.
struct PreparedRun {
  Settings settings;
  ModelConfig model;
  Mesh mesh;
  MemoryRule memory;  // the cheapest in computation, until another is chosen
  std::unique_ptr<SequenceSet> sequences;

  [[nodiscard]] int64_t micro_batches() const;    // of a step, on every rank
  [[nodiscard]] std::string summary() const;      // several lines: model, data, mesh, layout
  [[nodiscard]] std::string fingerprint() const;  // all that the ranks of a run must have in common
};

// Rows of a micro-batch, padding included: their numbers are 32-bit.
inline constexpr int64_t most_rows = (int64_t{1} << 31) - (int64_t{1} << 20);

// Ranks along each axis; ConfigurationError where the settings do not make up `ranks`.
Mesh resolve_mesh(const ParallelSettings& settings, int rank, int ranks);

// ConfigurationError where settings and model do not fit together.
void check_against_model(const Settings& settings, const ModelConfig& model);

// memory.directory, where it is set.
std::filesystem::path offload_directory(const Settings& settings);

// Throws ConfigurationError, DataError, EnvironmentError (an output directory that cannot be written).
PreparedRun prepare(const Settings& settings, int rank, int ranks);

enum class Phase : uint8_t { load, data, forward, backward, optimizer, save };
const char* name_of(Phase phase);

// One object of metrics.jsonl; docs/configuration.md defines the figures.
struct StepReport {
  // Where a rank's time went.
  struct Seconds {
    double attention = 0;
    double compute = 0;  // all other
    double exposed = 0;  // communication that nothing hid
  };

  int64_t step = 0, steps = 0;
  double loss = 0, grad_norm = 0, learning_rate = 0;
  int64_t label_tokens = 0, tokens = 0;
  double seconds = 0;
  std::vector<Seconds> ranks = {};
  int64_t peak_bytes = 0;
};

// Told what a run is doing, on every rank.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void entered(Phase /*phase*/, int64_t /*step*/) {}
  virtual void finished(const StepReport& /*report*/) {}
};

void train(PreparedRun& run, Device& device, Transport& transport, Listener& listener);

}  // namespace annulus
