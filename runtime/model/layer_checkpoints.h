// What the layers keep from forward for backward: on the device, or in storage but for the layers at work.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "runtime/model/decoder_layer.h"

namespace annulus {

// Room in storage for every layer's tensors, reserved once and used by each micro-batch.
class CheckpointStorage {
 public:
  CheckpointStorage(Device& device, Place place) : device_(device), place_(place) {}

  [[nodiscard]] bool used() const { return place_ != Place::device; }
  void reserve(int64_t layers, int64_t bytes);  // for each layer; does nothing the second time

  [[nodiscard]] std::vector<Transfer> store(int64_t layer, const LayerKept& kept, Stream stream) const;
  [[nodiscard]] std::vector<Transfer> load(const LayerKept& kept, int64_t layer, Stream stream) const;

 private:
  Device& device_;
  Place place_;
  Storage* storage_ = nullptr;    // once something is reserved there
  std::vector<int64_t> offsets_;  // by layer
};

// Of one micro-batch. Forward opens the layers in turn and closes each once it has gone through it; backward asks for
// them from the last to the first.
class LayerCheckpoints {
 public:
  LayerCheckpoints(Device& device, const ModelConfig& model, int64_t rows, DType dtype, const MemoryRule& rule,
                   CheckpointStorage& storage);

  const LayerKept& open(int64_t layer);                  // memory for it
  void close(int64_t layer, Stream stream);              // forward is through
  const LayerKept& fetch(int64_t layer, Stream stream);  // back on the device, and the one below it on its way
  void drop(int64_t layer);                              // backward is through

 private:
  struct Layer {
    std::optional<LayerKept> kept;
    std::vector<Transfer> transfers;
    void wait(Stream stream);
  };

  void load(int64_t layer, Stream stream);

  Device& device_;
  const ModelConfig& model_;
  int64_t rows_;
  DType dtype_;
  MemoryRule rule_;
  CheckpointStorage& storage_;
  std::vector<Layer> layers_;
};

}  // namespace annulus
