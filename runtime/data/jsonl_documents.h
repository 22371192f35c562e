// Documents of a JSON Lines file: {"input_ids": [...], "labels": [...]} one a line, labels optional, other keys
// ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/data/documents.h"
#include "runtime/files/file.h"

namespace annulus {

class JsonlDocuments final : public DocumentSource {
 public:
  // Parses the whole file once to check it, and keeps where each document lies.
  JsonlDocuments(const std::filesystem::path& path, int64_t vocabulary);

  [[nodiscard]] int64_t count() const override { return static_cast<int64_t>(lines_.size()); }
  [[nodiscard]] int64_t length(int64_t document) const override;
  void read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const override;

  struct Document {
    std::vector<int32_t> tokens, labels;  // of one length
  };

 private:
  // A line with a document of at least one token.
  struct Line {
    int64_t offset = 0, bytes = 0;
    int64_t number = 0;  // in the file, from 1
    int64_t tokens = 0;
  };

  InputFile file_;
  int64_t vocabulary_;
  std::vector<Line> lines_;
  mutable int64_t parsed_ = -1;  // the document in document_: a long one is read in many parts
  mutable Document document_;
};

}  // namespace annulus
