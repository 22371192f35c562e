#include "runtime/run.h"

#include <fmt/format.h>

#include <optional>
#include <tuple>

#include "kernels/narrow.h"
#include "parallel/held_transport.h"
#include "parallel/sequence_layout.h"
#include "parallel/timed_transport.h"
#include "runtime/checkpoint.h"
#include "runtime/metrics.h"
#include "runtime/optimizer.h"
#include "runtime/trainer.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

// The two paths a run cannot do without.
void check_given(const Settings& settings) {
  std::error_code unknown;
  if (!fs::is_directory(settings.model.path, unknown)) {
    throw DataError(
        fmt::format("model.path '{}' is no directory; it takes a local folder in Hugging Face's form (names on "
                    "the hub are not downloaded), relative to the configuration file",
                    settings.model.path.string()));
  }
}

// Finds out now, and not after the last step, whether results can be written.
void check_writable(const fs::path& directory) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (!failure) {
    try {
      OutputFile probe(directory / ".annulus-write-test");
      probe.write(std::as_bytes(std::span("x")));
      return;  // never committed, so it leaves nothing
    } catch (const EnvironmentError&) {
      failure = std::make_error_code(std::errc::permission_denied);
    }
  }
  throw EnvironmentError(fmt::format("output.directory: '{}' cannot be written ({}); choose another one",
                                     directory.string(), failure.message()));
}

void check_writable(const OutputSettings& output) {
  check_writable(output.directory);
  std::error_code unknown;
  const fs::path model = output.directory / "model";
  if (output.save_model && fs::exists(model, unknown)) check_writable(model);
  for (const fs::path& file : {output.directory / "metrics.jsonl", output.directory / "gradient.safetensors",
                               model / "config.json", model / "model.safetensors"}) {
    if (!fs::exists(file, unknown) || fs::is_regular_file(file, unknown)) continue;
    throw EnvironmentError(
        fmt::format("output.directory: '{}' is in the way of a result and is no file; remove it, or "
                    "choose another directory",
                    file.string()));
  }
}

bool trains_nothing(const Settings& settings) {
  for (int64_t step = 1; step <= settings.train.steps; ++step) {
    if (learning_rate(settings.optimizer, step, settings.train.steps) > 0) return false;
  }
  return true;
}

}  // namespace

Mesh resolve_mesh(const ParallelSettings& settings, int rank, int ranks) {
  const int context = settings.context_parallel_size, data = settings.data_parallel_size;
  Mesh mesh{.rank = rank};
  if (context != 0) {
    mesh.context_size = context;
    mesh.data_size = data != 0 ? data : ranks / context;
  } else {
    mesh.data_size = data != 0 ? data : 1;
    mesh.context_size = ranks / mesh.data_size;
  }
  if (int64_t{mesh.data_size} * mesh.context_size != ranks) {
    const auto text = [](int size) { return size == 0 ? std::string("auto") : std::to_string(size); };
    throw ConfigurationError(fmt::format(
        "parallel.context_parallel_size ({}) times parallel.data_parallel_size ({}) must be the number of ranks, {}",
        text(context), text(data), ranks));
  }
  return mesh;
}

void check_against_model(const Settings& settings, const ModelConfig& model) {
  if (settings.data.pad_token_id >= model.vocabulary) {
    throw ConfigurationError(fmt::format("data.pad_token_id is {}, but the model's vocabulary has {} tokens",
                                         settings.data.pad_token_id, model.vocabulary));
  }
  if (settings.data.sequence_length > most_rows / settings.train.micro_batch_size) {
    throw ConfigurationError(fmt::format(
        "data.sequence_length ({}) times train.micro_batch_size ({}) is more than {}, the rows of a micro-batch",
        settings.data.sequence_length, settings.train.micro_batch_size, most_rows));
  }
  if (settings.data.sequence_length == 1) {
    throw ConfigurationError(
        "data.sequence_length is 1; a token is learned from those before it, so it takes 2 at least");
  }
}

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::load:
      return "load";
    case Phase::data:
      return "data";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::optimizer:
      return "optimizer";
    case Phase::save:
      return "save";
  }
  throw InternalError("a phase without a name");
}

int64_t PreparedRun::micro_batches() const {
  return ceil_divide(settings.train.global_batch_size, mesh.data_size * settings.train.micro_batch_size);
}

std::string PreparedRun::fingerprint() const {
  const auto& [m, o, t] = std::tie(model, settings.optimizer, settings.train);
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", m.vocabulary, m.hidden, m.intermediate, m.layers,
                     m.heads, m.kv_heads, m.head_dim, m.rms_norm_eps, m.rope_theta, m.initializer_range, m.tied,
                     fmt::join(m.layer_windows, ","), name_of(settings.model.dtype)) +
         fmt::format(" {} {} {} {} {} {} {} {} {}", settings.model.seed, static_cast<int>(settings.model.init),
                     settings.data.sequence_length, static_cast<int>(settings.data.packing), settings.data.shuffle,
                     settings.data.seed, settings.data.pad_token_id, sequences->count(), sequences->tokens()) +
         fmt::format(" {} {} {} {} {} {} {} {} {}", o.learning_rate, o.beta1, o.beta2, o.eps, o.weight_decay,
                     o.max_grad_norm, static_cast<int>(o.schedule), o.warmup_steps, o.min_learning_rate) +
         fmt::format(" {} {} {} {} {} {} {} {} {} {}", t.steps, t.global_batch_size, t.micro_batch_size, mesh.data_size,
                     mesh.context_size, static_cast<int>(settings.parallel.layout), settings.output.save_model,
                     settings.debug.save_gradients, settings.debug.poison, memory.to_string()) +
         fmt::format(" {} {}", static_cast<int>(settings.runtime.device),
                     static_cast<int>(settings.parallel.transport));
}

std::filesystem::path offload_directory(const Settings& settings) {
  return settings.memory.directory.empty() ? settings.output.directory : settings.memory.directory;
}

PreparedRun prepare(const Settings& settings, int rank, int ranks) {
  check_given(settings);
  PreparedRun run{.settings = settings,
                  .model = ModelConfig::read(settings.model.path).with_window(settings.attention.sliding_window),
                  .mesh = resolve_mesh(settings.parallel, rank, ranks),
                  .memory = {},
                  .sequences = nullptr};
  check_against_model(settings, run.model);
  run.memory = memory_ladder(settings, run.model, run.mesh).front();
  if (settings.model.init == Initialization::pretrained) open_weights(settings.model.path, run.model);
  run.sequences =
      std::make_unique<SequenceSet>(open_documents(settings.data.train, run.model.vocabulary), settings.data);
  if (rank == 0) check_writable(settings.output);
  return run;
}

std::string PreparedRun::summary() const {
  const SequenceLayout layout(settings.parallel.layout, mesh.context_size, settings.train.micro_batch_size,
                              settings.data.sequence_length);
  std::string text = fmt::format(
      "model: {} parameters, {} layers, hidden {}, {}/{} heads of {}, vocabulary {}, {}\n"
      "data: {} sequences of {} tokens, from {} documents with {} in {}\n"
      "mesh: {} ranks = {} data groups x {} context ranks; {} rows a rank and micro-batch\n",
      model.parameters(), model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim, model.vocabulary,
      name_of(settings.model.dtype), sequences->count(), settings.data.sequence_length, sequences->documents(),
      sequences->tokens(), settings.data.train.string(), mesh.size(), mesh.data_size, mesh.context_size,
      layout.local_rows());
  if (sequences->left_out() > 0) {
    text +=
        fmt::format("warning: data.packing=none cuts documents off at data.sequence_length: {} tokens are left out\n",
                    sequences->left_out());
  }
  if (trains_nothing(settings)) {
    text += fmt::format("warning: the learning rate is 0 in every step, so nothing is learned: {}\n",
                        settings.optimizer.learning_rate > 0
                            ? "optimizer.schedule=cosine ends at optimizer.min_learning_rate, and the last step is the "
                              "only one; optimizer.schedule=constant does not"
                            : "optimizer.learning_rate is 0");
  }
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    text += fmt::format("layout: context rank {} holds rows", rank);
    for (const Chunk& chunk : layout.chunks(rank)) text += fmt::format(" [{}, {})", chunk.begin, chunk.end);
    text += '\n';
  }
  return text;
}

void train(PreparedRun& run, Device& device, Transport& transport, Listener& listener) {
  const OutputSettings& output = run.settings.output;
  std::optional<MetricsFile> metrics;
  if (transport.rank() == 0) metrics.emplace(output.directory / "metrics.jsonl");
  TimedTransport timed(transport, device.clock());
  HeldTransport held(timed, device.memory());
  device.set_progress([&timed] { timed.progress(); });
  Trainer trainer(run, device, run.settings.debug.poison ? static_cast<Transport&>(held) : timed, listener);
  trainer.set_weights();
  for (int64_t step = 1; step <= run.settings.train.steps; ++step) {
    const StepReport report = trainer.step(step);
    if (metrics) metrics->write(report);
    listener.finished(report);
    if (step == 1 && run.settings.debug.save_gradients) {
      trainer.save_gradients(output.directory / "gradient.safetensors");
    }
  }
  if (output.save_model) {
    listener.entered(Phase::save, run.settings.train.steps);
    trainer.save_model(output.directory / "model");
  }
  transport.barrier();
  device.set_progress(nullptr);
}

}  // namespace annulus
