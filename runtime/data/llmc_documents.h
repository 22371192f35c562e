// Token files as llm.c writes them (karpathy/llm.c, dev/data/data_common.py): a header of 256 int32, of which the first
// three are magic number, version and number of tokens, then the tokens. 20240520, version 1: uint16; 20240801, version
// 7: uint32.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "runtime/data/documents.h"
#include "runtime/data/token_file.h"

namespace annulus {

class LlmcDocuments final : public DocumentSource {
 public:
  // One document of each file; empty ones are skipped. Every header is checked against its file's size. Files are open
  // only while they are read, since there may be more than a process may open.
  LlmcDocuments(std::span<const std::filesystem::path> files, int64_t vocabulary);

  [[nodiscard]] int64_t count() const override { return static_cast<int64_t>(files_.size()); }
  [[nodiscard]] int64_t length(int64_t document) const override;
  void read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const override;

 private:
  struct File {
    std::filesystem::path path;
    TokenType type = TokenType::uint16;
    int64_t tokens = 0;
    [[nodiscard]] int64_t bytes() const;
  };

  static File read_header(const std::filesystem::path& path);

  int64_t vocabulary_;
  std::vector<File> files_;
};

}  // namespace annulus
