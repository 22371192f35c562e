// Token ids as token files hold them: little-endian integers one after the other, every token its own label.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "runtime/files/file.h"

namespace annulus {

enum class TokenType : uint8_t { uint16, int32, uint32 };

const char* name_of(TokenType type);
int64_t size_of(TokenType type);  // bytes

// Refuses a file whose ids are of too few bits for all of the vocabulary, which was then made for another: DataError.
void check_token_type(TokenType type, int64_t vocabulary, const std::filesystem::path& file);

// The ids from byte `offset` of the file on. Those of 2^31 and above come out negative.
void read_tokens(const InputFile& file, TokenType type, int64_t offset, std::span<int32_t> tokens);

// Where tokens stand, for the message about one that is wrong.
struct TokenPlace {
  std::string document;  // as a message names it
  int64_t first = 0;     // the offset of the first of them in the document
};

// DataError naming document, offset and id for the first token outside [0, vocabulary).
void check_tokens(std::span<const int32_t> tokens, TokenType type, int64_t vocabulary, const TokenPlace& place);

}  // namespace annulus
