// What a run was asked to do: the configuration file as plain values. Names and defaults are the file's; paths are
// already resolved. docs/configuration.md describes each key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "kernels/storage.h"
#include "kernels/tensor.h"
#include "parallel/sequence_layout.h"

namespace annulus {

enum class Initialization : uint8_t { pretrained, random };
enum class Packing : uint8_t { concat, none };
enum class ScheduleKind : uint8_t { cosine, constant };
enum class DeviceKind : uint8_t { automatic, cpu, cuda };
enum class TransportKind : uint8_t { automatic, nccl, mpi };

struct ModelSettings {
  std::filesystem::path path;
  Initialization init = Initialization::pretrained;
  uint64_t seed = 1;
  DType dtype = DType::bfloat16;
};

struct DataSettings {
  std::filesystem::path train;
  int64_t sequence_length = 0;
  Packing packing = Packing::concat;
  bool shuffle = true;
  uint64_t seed = 1;
  int32_t pad_token_id = 0;
};

// nullopt: what the model's config says, layer by layer; 0: no window; else the keys a query sees, itself included.
struct AttentionSettings {
  std::optional<int64_t> sliding_window;
};

// 0: auto
struct ParallelSettings {
  int context_parallel_size = 0;
  int data_parallel_size = 0;
  LayoutKind layout = LayoutKind::zigzag;
  TransportKind transport = TransportKind::automatic;  // between GPUs; automatic: NCCL
};

struct OptimizerSettings {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double max_grad_norm = 1.0;  // 0: no clipping
  ScheduleKind schedule = ScheduleKind::cosine;
  int64_t warmup_steps = 0;
  double min_learning_rate = 0;
};

struct TrainSettings {
  int64_t steps = 100;
  int64_t global_batch_size = 1;
  int64_t micro_batch_size = 1;
};

// What is kept from forward to backward; see docs/memory.md.
enum class Recompute : uint8_t {
  none,            // everything is kept
  keep_attention,  // each layer's input, attention's output and log-sums; attention is never computed twice
  layer,           // each layer's input
};

// nullopt: auto. Rows at a time; 0: all.
struct MemorySettings {
  std::optional<Recompute> recompute;
  std::optional<int64_t> mlp_tile;
  std::optional<int64_t> logits_tile;
  std::optional<Place> offload_checkpoints;
  std::optional<Place> offload_gradients;
  std::optional<Place> offload_optimizer;
  std::optional<Place> offload_parameters;
  std::filesystem::path directory = {};  // where Place::disk is; empty: output.directory
};

struct OutputSettings {
  std::filesystem::path directory;
  bool save_model = true;
  int64_t max_shard_size = 5'000'000'000;  // bytes
};

struct DebugSettings {
  bool save_gradients = false;
  bool poison = false;  // fill buffers with NaN when they are allocated and released
};

struct RuntimeSettings {
  DeviceKind device = DeviceKind::automatic;
  int threads = 0;            // 0: auto
  int64_t memory_budget = 0;  // bytes of the device a rank may use; 0: auto, what the device has
  int64_t host_budget = 0;    // bytes of host memory a rank may take beside a GPU; 0: auto
  int64_t disk_budget = 0;    // bytes a rank may take in memory.directory; 0: auto, what is free
};

struct Settings {
  ModelSettings model;
  DataSettings data;
  AttentionSettings attention;
  ParallelSettings parallel;
  OptimizerSettings optimizer;
  TrainSettings train;
  MemorySettings memory;
  OutputSettings output;
  DebugSettings debug;
  RuntimeSettings runtime;
};

}  // namespace annulus
