#include "runtime/files/safetensors_directory.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kernels/error.h"
#include "runtime/files/json.h"

namespace annulus {

namespace {

namespace fs = std::filesystem;

using TensorFiles = std::map<std::string, std::string>;  // tensor name to file name

// The "weight_map" of an index.
TensorFiles read_index(const fs::path& index) {
  const auto refuse = [&](const std::string& reason) {
    throw DataError(fmt::format("'{}' is not an index of safetensors files: {}", index.string(), reason));
  };
  const nlohmann::json json = read_json(index);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    refuse("there is no object 'weight_map'");
  }
  TensorFiles files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) refuse(fmt::format("the file of tensor '{}' is not a string", tensor));
    const auto name = file.get<std::string>();
    // The files of a model lie beside its index, never elsewhere on the machine.
    if (fs::path(name).filename() != name || name.empty()) {
      refuse(fmt::format("the file of tensor '{}' is '{}', not the name of a file beside it", tensor, name));
    }
    files.emplace(tensor, name);
  }
  return files;
}

}  // namespace

SafetensorsDirectory::SafetensorsDirectory(const fs::path& directory) : directory_(directory) {
  const fs::path single = directory / "model.safetensors", index = directory / "model.safetensors.index.json";
  std::error_code error;  // a file that cannot be looked at says so when it is opened
  if (fs::exists(single, error)) {
    add(SafetensorsReader(single));
  } else if (fs::exists(index, error)) {
    open_indexed(index);
  } else {
    throw DataError(
        fmt::format("'{}' holds neither model.safetensors nor model.safetensors.index.json; give the directory "
                    "of a downloaded model, or set model.init to random",
                    directory.string()));
  }
}

void SafetensorsDirectory::open_indexed(const fs::path& index) {
  const TensorFiles listed = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : listed) names.insert(file);
  for (const std::string& name : names) {
    SafetensorsReader file(directory_ / name);
    for (const auto& [tensor, stored] : file.tensors()) {
      const auto found = listed.find(tensor);
      if (found == listed.end() || found->second != name) {
        throw DataError(fmt::format("'{}' holds tensor '{}', but '{}' {}; fetch the model again", file.path().string(),
                                    tensor, index.string(),
                                    found == listed.end() ? "does not list it" : "says it is in " + found->second));
      }
    }
    add(std::move(file));
  }
  for (const auto& [tensor, file] : listed) {
    if (!tensors_.contains(tensor)) {
      throw DataError(fmt::format("'{}' says that tensor '{}' is in {}, which does not hold it; fetch the model again",
                                  index.string(), tensor, file));
    }
  }
}

void SafetensorsDirectory::add(SafetensorsReader file) {
  for (const auto& [name, tensor] : file.tensors()) file_of_.emplace(name, files_.size());
  tensors_.insert(file.tensors().begin(), file.tensors().end());
  files_.push_back(std::move(file));
}

const StoredTensor& SafetensorsDirectory::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw DataError(
        fmt::format("the weights in '{}' hold no tensor '{}'; are they of this model?", directory_.string(), name));
  }
  return found->second;
}

const fs::path& SafetensorsDirectory::path_of(const StoredTensor& tensor) const {
  return files_[file_of_.at(tensor.name)].path();
}

void SafetensorsDirectory::read(const StoredTensor& tensor, int64_t first, std::span<float> destination) const {
  files_[file_of_.at(tensor.name)].read(tensor, first, destination);
}

}  // namespace annulus
