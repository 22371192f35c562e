#include "launcher/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>

#include "kernels/narrow.h"
#include "launcher/config_value.h"
#include "launcher/nearest.h"

namespace annulus {
namespace {

constexpr int64_t int32_max = std::numeric_limits<int32_t>::max();

std::optional<int64_t> window(const ConfigValue& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_word("none")) return 0;
  return value.integer(1, std::numeric_limits<int64_t>::max(), "null, none or ");
}

int automatic_or_count(const ConfigValue& value) {
  return value.is_word("auto") ? 0 : narrow<int>(value.integer(1, int32_max, "auto or "));
}

std::optional<int64_t> automatic_or_rows(const ConfigValue& value) {
  if (value.is_word("auto")) return std::nullopt;
  return value.integer(0, int32_max, "auto or ");
}

int64_t automatic_or_bytes(const ConfigValue& value) {
  return value.is_word("auto") ? 0 : value.bytes();
}

std::optional<Place> place(const ConfigValue& value) {
  return value.choice<std::optional<Place>>(
      {{"auto", std::nullopt}, {"none", Place::device}, {"host", Place::host}, {"disk", Place::disk}});
}

using S = Settings;
using V = ConfigValue;

constexpr auto keys = std::to_array<ConfigKey>({
    {"model.path", "", "Hugging Face directory with config.json and, unless init is random, *.safetensors",
     [](S& s, const V& v) { s.model.path = v.path(); }},
    {"model.init", "pretrained", "pretrained | random: where the first weights come from",
     [](S& s, const V& v) {
       s.model.init =
           v.choice<Initialization>({{"pretrained", Initialization::pretrained}, {"random", Initialization::random}});
     }},
    {"model.seed", "1", "seed of random weights", [](S& s, const V& v) { s.model.seed = v.seed(); }},
    {"model.dtype", "bfloat16", "bfloat16 | float32: weights and activations",
     [](S& s, const V& v) {
       s.model.dtype = v.choice<DType>({{"bfloat16", DType::bfloat16}, {"float32", DType::float32}});
     }},

    {"data.train", "", "*.jsonl, a token file (llm.c, Megatron), a text file, or a folder of either",
     [](S& s, const V& v) { s.data.train = v.path(); }},
    {"data.sequence_length", "", "tokens of one sequence",
     [](S& s, const V& v) { s.data.sequence_length = v.integer(1, int32_max); }},
    {"data.packing", "concat", "concat | none: several documents in a sequence, or one",
     [](S& s, const V& v) { s.data.packing = v.choice<Packing>({{"concat", Packing::concat}, {"none", Packing::none}}); }},
    {"data.shuffle", "true", "a new order of the sequences in each epoch",
     [](S& s, const V& v) { s.data.shuffle = v.boolean(); }},
    {"data.seed", "1", "seed of that order", [](S& s, const V& v) { s.data.seed = v.seed(); }},
    {"data.pad_token_id", "0", "the token in slots no document fills",
     [](S& s, const V& v) { s.data.pad_token_id = narrow<int32_t>(v.integer(0, int32_max)); }},

    {"attention.sliding_window", "null", "null (as the model says) | none | keys a query sees, itself included",
     [](S& s, const V& v) { s.attention.sliding_window = window(v); }},

    {"parallel.context_parallel_size", "auto", "ranks along one sequence; auto: all that are left",
     [](S& s, const V& v) { s.parallel.context_parallel_size = automatic_or_count(v); }},
    {"parallel.data_parallel_size", "auto", "groups of ranks that work on different sequences",
     [](S& s, const V& v) { s.parallel.data_parallel_size = automatic_or_count(v); }},
    {"parallel.layout", "zigzag", "zigzag | contiguous: which rows of a sequence a rank holds",
     [](S& s, const V& v) {
       s.parallel.layout =
           v.choice<LayoutKind>({{"zigzag", LayoutKind::zigzag}, {"contiguous", LayoutKind::contiguous}});
     }},

    {"parallel.transport", "auto", "auto | nccl | mpi: how messages travel between GPUs; auto: nccl",
     [](S& s, const V& v) {
       s.parallel.transport = v.choice<TransportKind>(
           {{"auto", TransportKind::automatic}, {"nccl", TransportKind::nccl}, {"mpi", TransportKind::mpi}});
     }},

    {"optimizer.learning_rate", "1.0e-4", "peak learning rate",
     [](S& s, const V& v) { s.optimizer.learning_rate = v.number_from(0); }},
    {"optimizer.betas", "[0.9, 0.95]", "decay of AdamW's first and second moment",
     [](S& s, const V& v) { std::tie(s.optimizer.beta1, s.optimizer.beta2) = v.betas(); }},
    {"optimizer.eps", "1.0e-8", "AdamW's epsilon", [](S& s, const V& v) { s.optimizer.eps = v.number_above(0); }},
    {"optimizer.weight_decay", "0.1", "decoupled decay of all matrices",
     [](S& s, const V& v) { s.optimizer.weight_decay = v.number_from(0); }},
    {"optimizer.max_grad_norm", "1.0", "largest gradient norm; 0: no clipping",
     [](S& s, const V& v) { s.optimizer.max_grad_norm = v.number_from(0); }},
    {"optimizer.schedule", "cosine", "cosine | constant: the learning rate after the warm-up",
     [](S& s, const V& v) {
       s.optimizer.schedule =
           v.choice<ScheduleKind>({{"cosine", ScheduleKind::cosine}, {"constant", ScheduleKind::constant}});
     }},
    {"optimizer.warmup_steps", "0", "steps of linear warm-up",
     [](S& s, const V& v) { s.optimizer.warmup_steps = v.integer(0); }},
    {"optimizer.min_learning_rate", "0.0", "where the cosine ends",
     [](S& s, const V& v) { s.optimizer.min_learning_rate = v.number_from(0); }},

    {"train.steps", "100", "optimiser steps", [](S& s, const V& v) { s.train.steps = v.integer(1); }},
    {"train.global_batch_size", "1", "sequences of one step, over all ranks",
     [](S& s, const V& v) { s.train.global_batch_size = v.integer(1); }},
    {"train.micro_batch_size", "1", "sequences at once in one data group",
     [](S& s, const V& v) { s.train.micro_batch_size = v.integer(1); }},

    {"memory.recompute", "auto", "auto | none | keep_attention | layer: what backward computes again",
     [](S& s, const V& v) {
       s.memory.recompute = v.choice<std::optional<Recompute>>({{"auto", std::nullopt},
                                                                {"none", Recompute::none},
                                                                {"keep_attention", Recompute::keep_attention},
                                                                {"layer", Recompute::layer}});
     }},
    {"memory.mlp_tile", "auto", "rows at a time through the MLP; 0: all",
     [](S& s, const V& v) { s.memory.mlp_tile = automatic_or_rows(v); }},
    {"memory.logits_tile", "auto", "rows at a time through head and loss; 0: all",
     [](S& s, const V& v) { s.memory.logits_tile = automatic_or_rows(v); }},
    {"memory.offload_checkpoints", "auto", "auto | none | host | disk: where what backward needs of each layer waits",
     [](S& s, const V& v) { s.memory.offload_checkpoints = place(v); }},
    {"memory.offload_gradients", "auto", "auto | none | host | disk: where summed gradients wait",
     [](S& s, const V& v) { s.memory.offload_gradients = place(v); }},
    {"memory.offload_optimizer", "auto", "auto | none | host | disk: where master weights and moments wait",
     [](S& s, const V& v) { s.memory.offload_optimizer = place(v); }},
    {"memory.offload_parameters", "auto", "auto | none | host | disk: where weights wait for their use",
     [](S& s, const V& v) { s.memory.offload_parameters = place(v); }},
    {"memory.directory", "auto", "where disk is: a folder on a fast disk; auto: output.directory",
     [](S& s, const V& v) {
       if (!v.is_word("auto")) s.memory.directory = v.path();
     }},

    {"output.directory", "runs/NAME", "where results go; NAME: the configuration file's, without .yaml",
     [](S& s, const V& v) { s.output.directory = v.path_from_working_directory(); }},
    {"output.save_model", "true", "write a Hugging Face directory to output.directory/model at the end",
     [](S& s, const V& v) { s.output.save_model = v.boolean(); }},
    {"output.max_shard_size", "5GB", "largest file of a saved model, in bytes or KB, MB, GB, TB; beyond it: shards",
     [](S& s, const V& v) { s.output.max_shard_size = v.bytes(); }},

    {"debug.save_gradients", "false", "write gradient.safetensors: step 1, before clipping",
     [](S& s, const V& v) { s.debug.save_gradients = v.boolean(); }},
    {"debug.poison", "false", "fill every buffer with NaN when it is allocated and when it is released",
     [](S& s, const V& v) { s.debug.poison = v.boolean(); }},

    {"runtime.device", "auto", "auto | cpu | cuda",
     [](S& s, const V& v) {
       s.runtime.device = v.choice<DeviceKind>(
           {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}});
     }},
    {"runtime.threads", "auto", "CPU threads of a rank; auto: its share of the cores",
     [](S& s, const V& v) { s.runtime.threads = automatic_or_count(v); }},
    {"runtime.memory_budget", "auto", "what a rank may use, in bytes or KB, MB, GB, TB; auto: what the device has",
     [](S& s, const V& v) { s.runtime.memory_budget = automatic_or_bytes(v); }},
    {"runtime.host_budget", "auto", "host memory a rank may take for what leaves a GPU; auto: what the machine has",
     [](S& s, const V& v) { s.runtime.host_budget = automatic_or_bytes(v); }},
    {"runtime.disk_budget", "auto", "what a rank may take in memory.directory; auto: what is free",
     [](S& s, const V& v) { s.runtime.disk_budget = automatic_or_bytes(v); }},
});

constexpr auto sections = std::to_array<std::string_view>(
    {"model", "data", "attention", "parallel", "optimizer", "train", "memory", "output", "debug", "runtime"});

// How far a key is from what was written. A key in the wrong section is closer than a misspelt one in the right
// section: the section counts at most 2.
int64_t key_distance(std::string_view written, std::string_view known) {
  const size_t dot = written.find('.');
  const std::string_view section = dot == std::string_view::npos ? std::string_view() : written.substr(0, dot);
  const std::string_view key = dot == std::string_view::npos ? written : written.substr(dot + 1);
  const size_t known_dot = known.find('.');
  return std::min<int64_t>(2, edit_distance(section, known.substr(0, known_dot))) +
         edit_distance(key, known.substr(known_dot + 1));
}

// The index of the first of `known` at the least `distance`, each asked for once.
template <class T, size_t count, class Distance>
size_t nearest_of(const std::array<T, count>& known, const Distance& distance) {
  std::array<int64_t, count> distances;
  std::ranges::transform(known, distances.begin(), distance);
  return static_cast<size_t>(std::ranges::min_element(distances) - distances.begin());
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  return keys;
}

const ConfigKey* find_config_key(std::string_view name) {
  const auto* const found = std::ranges::find(keys, name, &ConfigKey::name);
  return found == keys.end() ? nullptr : &*found;
}

bool is_config_section(std::string_view name) {
  return std::ranges::find(sections, name) != sections.end();
}

std::string_view nearest_config_key(std::string_view name) {
  return keys[nearest_of(keys, [&](const ConfigKey& key) { return key_distance(name, key.name); })].name;
}

std::string_view nearest_config_section(std::string_view name) {
  return sections[nearest_of(sections, [&](std::string_view section) { return edit_distance(name, section); })];
}

std::string config_keys_help() {
  std::string text = "Configuration keys, with their defaults (docs/configuration.md says more):\n";
  for (const ConfigKey& key : keys) {
    text += fmt::format("  {:<31} {:<12} {}\n", key.name, key.required() ? "(required)" : key.fallback, key.meaning);
  }
  return text;
}

}  // namespace annulus
