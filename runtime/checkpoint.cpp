#include "runtime/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/narrow.h"
#include "runtime/files/model_companions.h"
#include "runtime/files/safetensors_directory_writer.h"
#include "runtime/model/units.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

constexpr const char* tied_head = "lm_head.weight";
constexpr int64_t piece_elements = int64_t{1} << 22;  // 16 MiB at a time

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::vector<int64_t> dimensions(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

int64_t largest_piece(ShardedParameters& parameters) {
  int64_t largest = 0;
  for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
    largest = std::max(largest, parameters.shard(unit).master.elements());
  }
  return std::min(piece_elements, largest);
}

// Where a range of a shard's tensor is worked on: in the tensor itself, or in room for a piece that goes to storage.
class PieceRoom {
 public:
  PieceRoom(ShardedParameters& parameters, ShardTensor ParameterShard::*tensor, Device& device) {
    const ShardTensor& first = parameters.shard(0).*tensor;
    if (first.elements() == 0 || first.resident()) return;
    room_ = device.allocate({largest_piece(parameters)}, first.dtype(), Purpose::staging);
  }
  [[nodiscard]] View of(const ShardTensor& tensor, int64_t begin, int64_t count) const {
    return tensor.resident() ? tensor.view().slice(begin, begin + count) : room_->slice(0, count);
  }

 private:
  Tensor room_;
};

// Sets the masters of this rank piece by piece with `fill(parameter, first, master piece)`, and the weights to their
// rounding.
template <class F>
void fill_masters(ShardedParameters& parameters, Device& device, Stream stream, F&& fill) {
  const PieceRoom master_room(parameters, &ParameterShard::master, device);
  const PieceRoom rounded_room(parameters, &ParameterShard::rounded, device);
  const auto keep = [&](const ShardTensor& tensor, int64_t begin, const View& piece) {
    if (!tensor.resident()) tensor.store(begin, piece, stream).wait(stream);
  };
  for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
    const ParameterShard& shard = parameters.shard(unit);
    for (const ParameterPart& part : shard.parts) {
      for (int64_t done = 0; done < part.count; done += piece_elements) {
        const int64_t count = std::min(piece_elements, part.count - done), begin = part.offset + done;
        const View master = master_room.of(shard.master, begin, count);
        fill(*part.parameter, part.first + done, master);
        keep(shard.master, begin, master);
        if (!shard.has_rounded()) continue;
        const View rounded = rounded_room.of(shard.rounded, begin, count);
        device.copy(rounded, master, stream);
        keep(shard.rounded, begin, rounded);
      }
    }
  }
}

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

StoredDType stored(DType dtype) {
  return dtype == DType::bfloat16 ? StoredDType::bf16 : StoredDType::f32;
}

template <class Writer>
void append(Writer& file, std::span<const float> values, const SavedTensors& what, const std::string& name) {
  if (!all_finite(values)) {
    throw Error(
        fmt::format("nothing is saved: tensor '{}' has values that are not finite; lower optimizer.learning_rate",
                    name),
        ExitCode::failure, SourceLocation::current());
  }
  std::vector<float> scaled(values.begin(), values.end());
  for (float& value : scaled) value = static_cast<float>(value * what.scale);
  if (what.dtype == StoredDType::f32) return file.append(std::as_bytes(std::span(scaled)));
  std::vector<bfloat16> rounded(scaled.size());
  std::transform(scaled.begin(), scaled.end(), rounded.begin(), [](float value) { return round_to_bfloat16(value); });
  file.append(std::as_bytes(std::span(rounded)));
}

// The part of a parameter that a rank holds, piece by piece: on rank 0 as host memory in `consume`, from wherever it
// is.
class PartGatherer {
 public:
  PartGatherer(ShardedParameters& parameters, Device& device, Transport& transport, Stream stream)
      : device_(device), transport_(transport), stream_(stream), room_(parameters, device, transport) {}

  template <class F>  // F(std::span<const float>)
  void gather(const ShardTensor& shard, const ParameterPart& part, int owner, F&& consume) {
    for (int64_t done = 0; done < part.count; done += piece_elements) {
      const int64_t count = std::min(piece_elements, part.count - done);
      const int64_t begin = part.offset + done;
      if (owner == 0 && transport_.rank() == 0) {
        consume(download(own(shard, begin, count)));
      } else if (transport_.rank() == owner) {
        const Message message{0, own(shard, begin, count)};
        transport_.exchange({&message, 1}, {}, Channel::parameters, stream_).wait(stream_);
      } else if (transport_.rank() == 0) {
        const Message message{owner, room_.received->slice(0, count)};
        transport_.exchange({}, {&message, 1}, Channel::parameters, stream_).wait(stream_);
        consume(download(message.data));
      }
    }
  }

 private:
  View own(const ShardTensor& shard, int64_t begin, int64_t count) {
    if (shard.resident()) return shard.view().slice(begin, begin + count);
    const View piece = room_.own->slice(0, count);
    shard.load(piece, begin, stream_).wait(stream_);
    return piece;
  }

  std::span<const float> download(const View& view) {
    host_.resize(static_cast<size_t>(view.elements()));
    device_.download(host_.data(), view, stream_);
    return host_;
  }

  Device& device_;
  Transport& transport_;
  Stream stream_;
  SavingRoom room_;
  std::vector<float> host_;
};

std::vector<StoredTensor> stored_tensors(const ShardedParameters& parameters, StoredDType dtype) {
  std::vector<StoredTensor> tensors;
  for (const ParameterUnit& unit : parameters.units()) {
    for (const Parameter& parameter : unit.parameters()) {
      tensors.push_back({.name = parameter.name, .dtype = dtype, .shape = dimensions(parameter.shape)});
    }
  }
  return tensors;
}

// Appends all tensors to rank 0's `file`, piece by piece; the other ranks have none.
template <class Writer>
void append_all(std::optional<Writer>& file, const SavedTensors& what, ShardedParameters& parameters, Device& device,
                Transport& transport, Stream stream) {
  PartGatherer gatherer(parameters, device, transport, stream);
  for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
    const ShardTensor& shard = what.select(parameters.shard(unit));
    for (int owner = 0; owner < transport.size(); ++owner) {  // shards in the order of ranks are the unit in order
      for (const ParameterPart& part : parts_in_shard(parameters.units()[unit], owner, transport.size())) {
        gatherer.gather(shard, part, owner,
                        [&](std::span<const float> values) { append(*file, values, what, part.parameter->name); });
      }
    }
  }
}

}  // namespace

SafetensorsDirectory open_weights(const fs::path& directory, const ModelConfig& model) {
  SafetensorsDirectory weights(directory);
  std::set<std::string> known;
  for (const ParameterUnit& unit : qwen3_units(model)) {
    for (const Parameter& parameter : unit.parameters()) {
      const StoredTensor& tensor = weights.tensor(parameter.name);
      if (tensor.shape != dimensions(parameter.shape)) {
        throw DataError(fmt::format("'{}': tensor '{}' has shape {}, but the model's config.json asks for {}",
                                    weights.path_of(tensor).string(), parameter.name, shape_text(tensor.shape),
                                    parameter.shape.to_string()));
      }
      known.insert(parameter.name);
    }
  }
  if (model.tied) known.insert(tied_head);
  for (const auto& [name, tensor] : weights.tensors()) {
    if (known.contains(name)) continue;
    throw DataError(fmt::format("'{}': tensor '{}' is not part of the model that config.json describes",
                                weights.path_of(tensor).string(), name));
  }
  return weights;
}

void load_weights(const SafetensorsDirectory& weights, ShardedParameters& parameters, Device& device, Stream stream) {
  std::vector<float> values;
  fill_masters(parameters, device, stream, [&](const Parameter& parameter, int64_t first, const View& master) {
    values.resize(static_cast<size_t>(master.elements()));
    const StoredTensor& tensor = weights.tensor(parameter.name);
    weights.read(tensor, first, std::span(values));
    if (!all_finite(values)) {
      throw DataError(fmt::format("'{}': tensor '{}' holds values that are not finite; the model is damaged",
                                  weights.path_of(tensor).string(), parameter.name));
    }
    device.upload(master, values.data(), stream);
  });
}

void random_weights(uint64_t seed, double range, ShardedParameters& parameters, Device& device, Stream stream) {
  fill_masters(parameters, device, stream, [&](const Parameter& parameter, int64_t first, const View& master) {
    if (parameter.shape.rank() == 1) {  // a norm
      const std::vector<float> ones(static_cast<size_t>(master.elements()), 1.0F);
      return device.upload(master, ones.data(), stream);
    }
    device.fill_normal({.destination = master,
                        .first = first,
                        .seed = seed,
                        .sample = static_cast<uint64_t>(parameter.index),
                        .deviation = range},
                       stream);
  });
}

void rehearse_loading(ShardedParameters& parameters, Device& device) {
  const PieceRoom master(parameters, &ParameterShard::master, device);
  const PieceRoom rounded(parameters, &ParameterShard::rounded, device);
}

SavingRoom::SavingRoom(ShardedParameters& parameters, Device& device, const Transport& transport) {
  device.memory().enter(Section::save);
  const auto piece = [&] { return device.allocate({largest_piece(parameters)}, DType::float32, Purpose::staging); };
  if (transport.rank() == 0 && transport.size() > 1) received = piece();
  const ParameterShard& shard = parameters.shard(0);
  if (!shard.master.resident() || !shard.gradient.resident()) own = piece();
}

void save_tensors(const fs::path& path, const SavedTensors& what, ShardedParameters& parameters, Device& device,
                  Transport& transport, Stream stream) {
  std::optional<SafetensorsWriter> file;
  if (transport.rank() == 0) file.emplace(path, stored_tensors(parameters, what.dtype));
  append_all(file, what, parameters, device, transport, stream);
  if (file) file->commit();
  transport.barrier();
}

void save_model(const SavedModel& model, ShardedParameters& parameters, Device& device, Transport& transport,
                Stream stream) {
  const SavedTensors what = {.select = [](const ParameterShard& shard) -> const ShardTensor& { return shard.master; },
                             .dtype = stored(model.dtype)};
  std::deque<OutputFile> companions;
  std::optional<SafetensorsDirectoryWriter> weights;
  if (transport.rank() == 0) {
    create_folders(model.directory);
    companions = copy_companions(model.source, model.directory, name_of(model.dtype));
    weights.emplace(model.directory, stored_tensors(parameters, what.dtype), model.max_shard_bytes);
  }
  append_all(weights, what, parameters, device, transport, stream);
  for (OutputFile& file : companions) file.commit();
  if (weights) weights->commit();
  transport.barrier();
}

}  // namespace annulus
