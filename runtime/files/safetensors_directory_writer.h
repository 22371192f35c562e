// The weights of a Hugging Face directory, written as transformers' save_pretrained does: model.safetensors, or, where
// that would be larger than a limit, model-00001-of-0000N.safetensors and so on with model.safetensors.index.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/files/safetensors.h"

namespace annulus {

// The tensors of each shard, by their places in `tensors` (huggingface_hub, serialization/_base.py,
// split_state_dict_into_shards_factory): in order they fill a shard up to `max_bytes`; one above that is a shard alone.
std::vector<std::vector<size_t>> split_into_shards(std::span<const StoredTensor> tensors, int64_t max_bytes);

// Takes the tensors' bytes piece by piece in the order given; no piece is of two tensors. Until commit() the directory
// reads as before; afterwards weights of an earlier save are gone. A crash within commit() leaves the old weights, the
// new ones or, where shards of the same names are replaced, none that an index names, but never a mixture. Errors as
// those of OutputFile.
class SafetensorsDirectoryWriter {
 public:
  SafetensorsDirectoryWriter(std::filesystem::path directory, std::vector<StoredTensor> tensors,
                             int64_t max_shard_bytes);
  void append(std::span<const std::byte> bytes);
  void commit();

 private:
  struct Shard {
    std::string name;                         // of the file
    std::vector<StoredTensor> tensors;        // in order
    std::unique_ptr<SafetensorsWriter> file;  // once its first tensor has come
  };

  [[nodiscard]] bool is_sharded() const { return shards_.size() > 1; }
  [[nodiscard]] std::string index() const;

  std::filesystem::path directory_;
  std::vector<StoredTensor> tensors_;
  std::vector<Shard> shards_;
  std::vector<size_t> shard_of_;  // by tensor
  size_t tensor_ = 0;             // whose bytes come next
  int64_t written_ = 0;           // bytes of it
};

}  // namespace annulus
