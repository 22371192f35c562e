#include "runtime/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>
#include <optional>
#include <set>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/narrow.h"
#include "kernels/philox.h"
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

// Fills the masters of this rank piece by piece with what `read(parameter, first, destination)` gives.
template <class F>
void fill_masters(ShardedParameters& parameters, Device& device, Stream stream, F&& read) {
  std::vector<float> piece;
  for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
    const ParameterShard& shard = parameters.shard(unit);
    for (const ParameterPart& part : shard.parts) {
      for (int64_t done = 0; done < part.count; done += piece_elements) {
        piece.resize(static_cast<size_t>(std::min(piece_elements, part.count - done)));
        read(*part.parameter, part.first + done, std::span(piece));
        const int64_t begin = part.offset + done;
        device.upload(shard.master->slice(begin, begin + static_cast<int64_t>(piece.size())), piece.data(), stream);
      }
    }
    if (shard.weights().data() != shard.master->data()) device.copy(shard.weights(), shard.master, stream);
  }
}

// A normal number for each element: one block of the generator gives a pair (Box and Muller, 1958).
double normal(uint64_t seed, int64_t tensor, int64_t element) {
  const auto words =
      Philox::words(seed, RandomStream::initialization, static_cast<uint64_t>(tensor), narrow<uint32_t>(element / 2));
  const double u1 = (words[0] + 0.5) * 0x1p-32;
  const double u2 = words[1] * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u1));
  const double angle = 2 * std::numbers::pi * u2;
  return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
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
  std::transform(scaled.begin(), scaled.end(), rounded.begin(), round_to_bfloat16);
  file.append(std::as_bytes(std::span(rounded)));
}

// The part of a parameter that a rank holds, piece by piece: on rank 0 as host memory in `consume`, from wherever it
// is.
class PartGatherer {
 public:
  PartGatherer(ShardedParameters& parameters, Device& device, Transport& transport, Stream stream)
      : device_(device), transport_(transport), stream_(stream), room_(saving_room(parameters, device, transport)) {}

  template <class F>  // F(std::span<const float>)
  void gather(const View& shard, const ParameterPart& part, int owner, F&& consume) {
    for (int64_t done = 0; done < part.count; done += piece_elements) {
      const int64_t count = std::min(piece_elements, part.count - done);
      const int64_t begin = part.offset + done;
      if (owner == 0 && transport_.rank() == 0) {
        consume(download(shard.slice(begin, begin + count)));
      } else if (transport_.rank() == owner) {
        const Message message{0, shard.slice(begin, begin + count)};
        transport_.exchange({&message, 1}, {}, Channel::parameters, stream_).wait(stream_);
      } else if (transport_.rank() == 0) {
        const Message message{owner, room_->slice(0, count)};
        transport_.exchange({}, {&message, 1}, Channel::parameters, stream_).wait(stream_);
        consume(download(message.data));
      }
    }
  }

 private:
  std::span<const float> download(const View& view) {
    host_.resize(static_cast<size_t>(view.elements()));
    device_.download(host_.data(), view, stream_);
    return host_;
  }

  Device& device_;
  Transport& transport_;
  Stream stream_;
  Tensor room_;
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
    const View& shard = what.select(parameters.shard(unit));
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
  fill_masters(parameters, device, stream, [&](const Parameter& parameter, int64_t first, std::span<float> piece) {
    const StoredTensor& tensor = weights.tensor(parameter.name);
    weights.read(tensor, first, piece);
    if (all_finite(piece)) return;
    throw DataError(fmt::format("'{}': tensor '{}' holds values that are not finite; the model is damaged",
                                weights.path_of(tensor).string(), parameter.name));
  });
}

void random_weights(uint64_t seed, double range, ShardedParameters& parameters, Device& device, Stream stream) {
  fill_masters(parameters, device, stream, [&](const Parameter& parameter, int64_t first, std::span<float> piece) {
    for (size_t i = 0; i < piece.size(); ++i) {
      const int64_t element = first + static_cast<int64_t>(i);
      const bool is_norm = parameter.shape.rank() == 1;
      piece[i] = is_norm ? 1.0F : static_cast<float>(range * normal(seed, parameter.index, element));
    }
  });
}

Tensor saving_room(ShardedParameters& parameters, Device& device, Transport& transport) {
  device.memory().enter(Section::save);
  if (transport.rank() != 0 || transport.size() == 1) return {};
  int64_t largest = 0;
  for (const ParameterUnit& unit : parameters.units()) {
    largest = std::max(largest, unit.shard_elements(transport.size()));
  }
  return device.allocate({std::min(piece_elements, largest)}, DType::float32, Purpose::staging);
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
  const SavedTensors what = {.select = [](const ParameterShard& shard) -> const View& { return shard.master.view(); },
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
