// Token files as Megatron writes them: X.bin with the tokens and X.idx, which says where the documents lie.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "runtime/data/documents.h"
#include "runtime/data/megatron_index.h"
#include "runtime/data/token_file.h"
#include "runtime/files/file.h"

namespace annulus {

// X.idx for X.
std::filesystem::path megatron_index_path(std::filesystem::path prefix);

class MegatronDocuments final : public DocumentSource {
 public:
  // The documents of the document index; empty ones are skipped. The whole index is checked; 8 bytes a document of it
  // are kept.
  MegatronDocuments(const std::filesystem::path& prefix, int64_t vocabulary);

  [[nodiscard]] int64_t count() const override { return static_cast<int64_t>(index_.ends.size()); }
  [[nodiscard]] int64_t length(int64_t document) const override;
  void read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const override;

 private:
  [[nodiscard]] int64_t begin(int64_t document) const;  // its first token
  [[nodiscard]] std::string name_of_document(int64_t document) const;

  InputFile file_;  // the .bin
  MegatronIndex index_;
  int64_t vocabulary_;
};

}  // namespace annulus
