// Text files as bytes: a token is a byte, every token is its own label.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "runtime/data/documents.h"

namespace annulus {

class ByteDocuments final : public DocumentSource {
 public:
  // One document of each file; empty ones are skipped. Only names and sizes are kept, and a file is open only while it
  // is read, since there may be more files than a process may open.
  explicit ByteDocuments(std::span<const std::filesystem::path> files);

  [[nodiscard]] int64_t count() const override { return static_cast<int64_t>(files_.size()); }
  [[nodiscard]] int64_t length(int64_t document) const override;
  void read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const override;

 private:
  struct File {
    std::filesystem::path path;
    int64_t size = 0;  // bytes
  };

  std::vector<File> files_;
};

}  // namespace annulus
