#include "runtime/data/llmc_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/error.h"
#include "kernels/narrow.h"

namespace annulus {

namespace {

constexpr int64_t header_bytes = 1024;

struct Format {
  int32_t magic, version;
  TokenType type;
};
constexpr std::array formats = {Format{20240520, 1, TokenType::uint16}, Format{20240801, 7, TokenType::uint32}};

[[noreturn]] void refuse(const InputFile& file, const std::string& reason) {
  throw DataError(fmt::format("'{}' is not a token file to be read: {}", file.path().string(), reason));
}

}  // namespace

int64_t LlmcDocuments::File::bytes() const {
  return header_bytes + tokens * size_of(type);
}

LlmcDocuments::File LlmcDocuments::read_header(const std::filesystem::path& path) {
  const InputFile file(path);
  if (file.size() < header_bytes) {
    refuse(file, fmt::format("its {} bytes are too few for llm.c's header of {}, and there is no *.idx beside it that "
                             "would make it Megatron's",
                             file.size(), header_bytes));
  }
  std::array<int32_t, 3> header{};
  file.read(0, std::as_writable_bytes(std::span(header)));
  const auto [magic, version, tokens] = header;
  const auto* const format = std::ranges::find(formats, magic, &Format::magic);
  if (format == formats.end()) {
    refuse(file,
           fmt::format("it begins with {}, not with llm.c's 20240520 or 20240801, and there is no *.idx beside it "
                       "that would make it Megatron's",
                       magic));
  }
  if (version != format->version) {
    refuse(file, fmt::format("its version is {}, but of llm.c's files with the magic number {} only version {} is read",
                             version, magic, format->version));
  }
  const File found{path, format->type, tokens};
  if (tokens < 0 || found.bytes() != file.size()) {
    refuse(file, fmt::format("its header counts {} {} tokens, which with the header take {} bytes, but it has {}; it "
                             "was cut off, or not finished",
                             tokens, name_of(format->type), found.bytes(), file.size()));
  }
  return found;
}

LlmcDocuments::LlmcDocuments(std::span<const std::filesystem::path> files, int64_t vocabulary)
    : vocabulary_(vocabulary) {
  for (const std::filesystem::path& path : files) {
    File file = read_header(path);
    check_token_type(file.type, vocabulary, path);
    if (file.tokens > 0) files_.push_back(std::move(file));
  }
}

int64_t LlmcDocuments::length(int64_t document) const {
  return files_[narrow<size_t>(document)].tokens;
}

void LlmcDocuments::read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const {
  const File& known = files_[narrow<size_t>(document)];
  require(tokens.size() == labels.size() && first >= 0 && first + std::ssize(tokens) <= known.tokens,
          "a document is read within its length");
  const InputFile file(known.path);
  file.require_size(known.bytes());
  read_tokens(file, known.type, header_bytes + first * size_of(known.type), tokens);
  check_tokens(tokens, known.type, vocabulary_, {fmt::format("'{}'", known.path.string()), first});
  std::ranges::copy(tokens, labels.begin());
}

}  // namespace annulus
