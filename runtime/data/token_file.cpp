#include "runtime/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/error.h"
#include "kernels/narrow.h"

namespace annulus {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and are read as they lie");

const char* name_of(TokenType type) {
  switch (type) {
    case TokenType::uint16:
      return "uint16";
    case TokenType::int32:
      return "int32";
    case TokenType::uint32:
      return "uint32";
  }
  throw InternalError("a token type without a name");
}

int64_t size_of(TokenType type) {
  return type == TokenType::uint16 ? 2 : 4;
}

void check_token_type(TokenType type, int64_t vocabulary, const std::filesystem::path& file) {
  constexpr int64_t uint16_values = 65536;
  if (type != TokenType::uint16 || vocabulary <= uint16_values) return;
  throw DataError(
      fmt::format("'{}' holds uint16 tokens, which cannot name all of the model's vocabulary of {}; it was made "
                  "with another tokenizer, so make it again with the model's",
                  file.string(), vocabulary));
}

void read_tokens(const InputFile& file, TokenType type, int64_t offset, std::span<int32_t> tokens) {
  if (type != TokenType::uint16) return file.read(offset, std::as_writable_bytes(tokens));
  std::array<uint16_t, 32768> buffer;
  while (!tokens.empty()) {
    const auto piece = std::span(buffer).first(std::min(buffer.size(), tokens.size()));
    file.read(offset, std::as_writable_bytes(piece));
    std::ranges::copy(piece, tokens.begin());
    offset += narrow<int64_t>(piece.size_bytes());
    tokens = tokens.subspan(piece.size());
  }
}

void check_tokens(std::span<const int32_t> tokens, TokenType type, int64_t vocabulary, const TokenPlace& place) {
  // As unsigned numbers, negative ones are above any vocabulary.
  const auto wrong =
      std::ranges::find_if(tokens, [&](int32_t token) { return static_cast<uint32_t>(token) >= vocabulary; });
  if (wrong == tokens.end()) return;
  const int64_t id = type == TokenType::uint32 ? int64_t{static_cast<uint32_t>(*wrong)} : int64_t{*wrong};
  throw DataError(
      fmt::format("{}, offset {}: the token is {}, but a token is from 0 to {}, the model's vocabulary; was it made "
                  "with another tokenizer?",
                  place.document, place.first + (wrong - tokens.begin()), id, vocabulary - 1));
}

}  // namespace annulus
