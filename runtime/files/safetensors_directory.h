// The weights of a Hugging Face directory as if they were one file: model.safetensors, or else the files that
// model.safetensors.index.json names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/files/safetensors.h"

namespace annulus {

// Reads like a SafetensorsReader. Where there is an index, it and the files it names must hold the same tensors:
// DataError naming the file that is missing or the tensor that only one side knows. Other files in the directory are
// ignored.
class SafetensorsDirectory {
 public:
  explicit SafetensorsDirectory(const std::filesystem::path& directory);

  [[nodiscard]] const std::filesystem::path& path() const { return directory_; }
  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const StoredTensor& tensor(const std::string& name) const;  // DataError where it is missing

  [[nodiscard]] const std::filesystem::path& path_of(const StoredTensor& tensor) const;  // the file that holds it

  // Elements [first, first + destination.size()) of a tensor, widened to float32.
  void read(const StoredTensor& tensor, int64_t first, std::span<float> destination) const;

 private:
  void open_indexed(const std::filesystem::path& index);
  void add(SafetensorsReader file);

  std::filesystem::path directory_;
  std::vector<SafetensorsReader> files_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, size_t> file_of_;  // tensor name to its place in files_
};

}  // namespace annulus
