// The safetensors format (huggingface/safetensors, README, "Format"): a little-endian u64 length N, N bytes of JSON
// naming every tensor with dtype, shape and byte range, then the bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/files/file.h"

namespace annulus {

enum class StoredDType : uint8_t { f32, bf16, f16 };

struct StoredTensor {
  std::string name;
  StoredDType dtype = StoredDType::f32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // of its first byte in the file; set by the reader

  [[nodiscard]] int64_t elements() const;
  [[nodiscard]] int64_t bytes() const;
};

// Checks the whole header when opened; throws DataError naming the file and the tensor. Tensors of other dtypes than
// StoredDType are refused when a file holds them.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const StoredTensor& tensor(const std::string& name) const;  // DataError where it is missing

  // Elements [first, first + destination.size()) of a tensor, widened to float32.
  void read(const StoredTensor& tensor, int64_t first, std::span<float> destination) const;

 private:
  InputFile file_;
  std::map<std::string, StoredTensor> tensors_;
};

// Writes the tensors in the order given, under unique names; append() takes their bytes piece by piece and finishes the
// file with the last, so that many may wait for commit(), which checks that all came. Errors as those of OutputFile.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<StoredTensor> tensors);
  void append(std::span<const std::byte> bytes);
  void commit();

 private:
  OutputFile file_;
  int64_t expected_ = 0, written_ = 0;  // bytes of data
};

}  // namespace annulus
