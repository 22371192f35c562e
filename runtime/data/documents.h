// Documents: token ids with an answer to each, read as needed. A source knows how many there are and how long each is
// without holding them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace annulus {

inline constexpr int32_t no_label = -1;  // in memory; -100 in files

// Used by one thread at a time: a source may keep what it read last.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;

  [[nodiscard]] virtual int64_t count() const = 0;
  [[nodiscard]] virtual int64_t length(int64_t document) const = 0;  // tokens, at least 1

  // Tokens [first, first + tokens.size()) of a document and the answer at each (not shifted; no_label: none).
  virtual void read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const = 0;
};

// Chooses by what the path is: *.jsonl, one document a line; Megatron's token file, as X.bin, X.idx or X where nothing
// of that name exists; one of llm.c, another *.bin; else text as bytes. A folder is one of llm.c's token files or of
// texts, one document a file in the byte order of their relative paths. Throws DataError with file, document and offset
// for what is wrong; that an id of a token file is outside the vocabulary is found when it is read, all else here.
// Empty documents are skipped; a source that leaves nothing to learn is an error.
std::unique_ptr<DocumentSource> open_documents(const std::filesystem::path& path, int64_t vocabulary);

}  // namespace annulus
