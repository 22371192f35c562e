// Which rows of a sequence each context rank holds. A layout is a list of chunks per rank in global row coordinates;
// ring attention knows nothing else about it, so any balanced assignment is one more way to fill the lists.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace annulus {

enum class LayoutKind : uint8_t { zigzag, contiguous };

// Global rows [begin, end).
struct Chunk {
  int64_t begin = 0, end = 0;
  [[nodiscard]] int64_t rows() const { return end - begin; }
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

class SequenceLayout {
 public:
  // `sequences` sequences of `length` rows, one after the other, each padded with dead rows at its end to what the kind
  // needs: a multiple of ranks (contiguous: rank r holds the r-th part) or of 2·ranks (zigzag: rank r holds parts r and
  // 2·ranks−1−r, which balances causal attention). Every rank holds equally many rows.
  SequenceLayout(LayoutKind kind, int ranks, int64_t sequences, int64_t length);

  [[nodiscard]] int ranks() const { return static_cast<int>(chunks_.size()); }
  [[nodiscard]] int64_t padded_length() const { return padded_length_; }       // rows of one sequence
  [[nodiscard]] int64_t global_rows() const { return global_rows_; }           // of all sequences
  [[nodiscard]] int64_t local_rows() const { return global_rows_ / ranks(); }  // of one rank
  [[nodiscard]] std::span<const Chunk> chunks(int rank) const { return chunks_[static_cast<size_t>(rank)]; }

  // A rank's rows of a finished global array, in the order of its chunks.
  template <class T>
  [[nodiscard]] std::vector<T> cut(std::span<const T> global, int rank) const {
    std::vector<T> local;
    local.reserve(static_cast<size_t>(local_rows()));
    for (const Chunk& chunk : chunks(rank)) {
      local.insert(local.end(), global.begin() + chunk.begin, global.begin() + chunk.end);
    }
    return local;
  }

 private:
  int64_t padded_length_;
  int64_t global_rows_;
  std::vector<std::vector<Chunk>> chunks_;  // adjacent chunks of one rank are merged
};

}  // namespace annulus
