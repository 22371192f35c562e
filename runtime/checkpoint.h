// Parameters from files and random numbers into the shards, and from the shards into Hugging Face directories.
#pragma once

#include <filesystem>
#include <functional>

#include "kernels/device.h"
#include "parallel/sharded_parameters.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/safetensors_directory.h"
#include "runtime/model_config.h"
#include "runtime/settings.h"

namespace annulus {

// The weights of a model directory, in one file or several, checked against the model: DataError names a tensor that is
// missing, too many, or of another shape. A tied model may carry its head again, which is not read.
SafetensorsDirectory open_weights(const std::filesystem::path& directory, const ModelConfig& model);

// Every rank reads only its own shards.
void load_weights(const SafetensorsDirectory& weights, ShardedParameters& parameters, Device& device, Stream stream);

// Norms 1, all else normal with the model's initializer_range, as docs/configuration.md defines model.init: random.
void random_weights(uint64_t seed, double range, ShardedParameters& parameters, Device& device, Stream stream);

// Takes the device memory that setting weights takes, and nothing else.
void rehearse_loading(ShardedParameters& parameters, Device& device);

// The device memory that saving takes; every way of saving takes the same.
struct SavingRoom {
  Tensor received;  // on rank 0: a part from another rank
  Tensor own;       // a part of this rank's shard, where that may be in storage

  SavingRoom(ShardedParameters& parameters, Device& device, const Transport& transport);
};

// What to write of a shard, and by what to multiply it.
struct SavedTensors {
  std::function<const ShardTensor&(const ParameterShard&)> select;  // float32
  double scale = 1;
  StoredDType dtype = StoredDType::f32;
};

// Rank 0 writes `path`, a tensor at a time; the other ranks send it their parts.
void save_tensors(const std::filesystem::path& path, const SavedTensors& what, ShardedParameters& parameters,
                  Device& device, Transport& transport, Stream stream);

// What makes a model directory, and where it goes.
struct SavedModel {
  std::filesystem::path directory;
  std::filesystem::path source;  // whose config and tokenizer files it gets, see copy_companions()
  DType dtype = DType::bfloat16;
  int64_t max_shard_bytes = 0;  // see SafetensorsDirectoryWriter
};

// A directory that transformers opens, written as save_tensors() does. It stays as it was until all is written.
void save_model(const SavedModel& model, ShardedParameters& parameters, Device& device, Transport& transport,
                Stream stream);

}  // namespace annulus
