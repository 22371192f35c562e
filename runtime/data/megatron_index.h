// The index of a Megatron token file (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py), little-endian:
// "MMIDIDX\0\0", u64 version 1, u8 dtype code, u64 sequences, u64 entries of the document index; int32
// lengths[sequences] in tokens, int64 offsets[sequences] in bytes of the .bin, int64 starts[entries]: document d is the
// sequences starts[d] ... starts[d + 1] - 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/data/token_file.h"

namespace annulus {

// Documents with at least one token, one after the other. Their tokens are counted through all of them.
struct MegatronIndex {
  // Tokens that lie in one range of the .bin; usually all do.
  struct Extent {
    int64_t first = 0;   // token
    int64_t offset = 0;  // of its first byte in the .bin
  };

  TokenType type = TokenType::int32;
  std::vector<int64_t> ends;     // per document: the token after its last
  std::vector<int64_t> skipped;  // for each empty document, in order: how many documents with tokens are before it
  std::vector<Extent> extents;   // in the order of tokens
};

// Throws DataError naming the file and the numbers that disagree: among themselves, with the file's size, or with the
// `bin_size` bytes of the .bin, all of which must belong to sequences.
MegatronIndex read_megatron_index(const std::filesystem::path& path, int64_t bin_size);

}  // namespace annulus
