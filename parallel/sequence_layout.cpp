#include "parallel/sequence_layout.h"

#include "kernels/narrow.h"

namespace annulus {
namespace {

void append(std::vector<Chunk>& chunks, Chunk chunk) {
  if (!chunks.empty() && chunks.back().end == chunk.begin) {
    chunks.back().end = chunk.end;
  } else {
    chunks.push_back(chunk);
  }
}

}  // namespace

SequenceLayout::SequenceLayout(LayoutKind kind, int ranks, int64_t sequences, int64_t length)
    : chunks_(static_cast<size_t>(ranks)) {
  const int64_t parts = kind == LayoutKind::zigzag ? 2 * int64_t{ranks} : int64_t{ranks};
  padded_length_ = ranks == 1 ? length : round_up(length, parts);
  global_rows_ = sequences * padded_length_;
  const int64_t part = padded_length_ / (ranks == 1 ? 1 : parts);
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const int64_t start = sequence * padded_length_;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& own = chunks_[static_cast<size_t>(rank)];
      append(own, {start + rank * part, start + (rank + 1) * part});
      if (kind == LayoutKind::zigzag && ranks > 1) {
        append(own, {start + (parts - 1 - rank) * part, start + (parts - rank) * part});
      }
    }
  }
}

}  // namespace annulus
