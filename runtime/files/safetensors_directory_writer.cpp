#include "runtime/files/safetensors_directory_writer.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <system_error>
#include <utility>

#include "kernels/error.h"

namespace annulus {

namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

std::string name_of_shard(size_t shard, size_t shards) {
  return shards == 1 ? single_name : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

// Removes weights, and what a crash left of them, that are not among `kept`. An index goes before its shards and a
// single file, which readers prefer, before the shards it hid.
void remove_other_weights(const fs::path& directory, const std::set<std::string>& kept) {
  static const std::regex weights(
      R"((model\.safetensors|model\.safetensors\.index\.json|model-\d{5,}-of-\d{5,}\.safetensors)(\.partial)?)");
  std::set<std::string, std::greater<>> others;  // descending: '.' comes after '-'
  std::error_code error;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (std::regex_match(name, weights) && !kept.contains(name)) others.insert(name);
  }
  if (error) throw EnvironmentError(fmt::format("cannot list '{}': {}", directory.string(), error.message()));
  for (const std::string& name : others) remove_file(directory / name);
}

}  // namespace

std::vector<std::vector<size_t>> split_into_shards(std::span<const StoredTensor> tensors, int64_t max_bytes) {
  std::vector<std::vector<size_t>> shards;
  std::vector<size_t> current;
  int64_t filled = 0;  // bytes of `current`
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].bytes();
    if (bytes > max_bytes) {
      shards.push_back({i});
      continue;
    }
    if (bytes > max_bytes - filled) {
      shards.push_back(std::exchange(current, {}));
      filled = 0;
    }
    current.push_back(i);
    filled += bytes;
  }
  if (!current.empty()) shards.push_back(std::move(current));
  return shards;
}

SafetensorsDirectoryWriter::SafetensorsDirectoryWriter(fs::path directory, std::vector<StoredTensor> tensors,
                                                       int64_t max_shard_bytes)
    : directory_(std::move(directory)), tensors_(std::move(tensors)), shard_of_(tensors_.size()) {
  require(!tensors_.empty(), "a model has tensors");
  const std::vector<std::vector<size_t>> places = split_into_shards(tensors_, max_shard_bytes);
  for (size_t shard = 0; shard < places.size(); ++shard) {
    Shard& made = shards_.emplace_back();
    made.name = name_of_shard(shard, places.size());
    for (const size_t tensor : places[shard]) {
      made.tensors.push_back(tensors_[tensor]);
      shard_of_[tensor] = shard;
    }
  }
}

void SafetensorsDirectoryWriter::append(std::span<const std::byte> bytes) {
  require(tensor_ < tensors_.size() && written_ + std::ssize(bytes) <= tensors_[tensor_].bytes(),
          "no more bytes are appended than the tensor takes");
  Shard& shard = shards_[shard_of_[tensor_]];
  if (!shard.file) shard.file = std::make_unique<SafetensorsWriter>(directory_ / shard.name, shard.tensors);
  shard.file->append(bytes);
  written_ += std::ssize(bytes);
  if (written_ == tensors_[tensor_].bytes()) {
    ++tensor_;
    written_ = 0;
  }
}

// As transformers writes it: json.dumps(index, indent=2, sort_keys=True) and a line feed.
std::string SafetensorsDirectoryWriter::index() const {
  int64_t total = 0;
  nlohmann::json files = nlohmann::json::object();
  for (const Shard& shard : shards_) {
    for (const StoredTensor& tensor : shard.tensors) {
      files[tensor.name] = shard.name;
      total += tensor.bytes();
    }
  }
  return nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", files}}.dump(2) + '\n';
}

void SafetensorsDirectoryWriter::commit() {
  require(tensor_ == tensors_.size(), "every tensor's bytes have been appended");
  std::set<std::string> kept;
  bool replaces_shards = false;
  std::error_code unknown;
  for (const Shard& shard : shards_) {
    kept.insert(shard.name);
    replaces_shards = replaces_shards || (is_sharded() && fs::is_regular_file(directory_ / shard.name, unknown));
  }
  std::optional<OutputFile> index_file;
  if (is_sharded()) {
    kept.insert(index_name);
    index_file.emplace(directory_ / index_name);
    const std::string text = index();
    index_file->write(std::as_bytes(std::span(text)));
    index_file->finish();
  }
  // From here on nothing is written any more, only renamed and removed. An old index must not name new shards.
  if (replaces_shards) remove_file(directory_ / index_name);
  for (const Shard& shard : shards_) shard.file->commit();
  if (index_file) index_file->commit();
  remove_other_weights(directory_, kept);
}

}  // namespace annulus
