// Documents packed into sequences of one length, in global order. Labels are shifted, positions counted and pieces
// marked here, before anything is cut for ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/data/documents.h"
#include "runtime/settings.h"

namespace annulus {

// Consecutive rows [begin, end) of a sequence that belong to one document and see only each other.
struct Piece {
  int64_t begin = 0, end = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

// One sequence of data.sequence_length rows; rows after the last piece are dead: pad_token_id, position 0, no answer.
struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> answers;    // row i: the label at i + 1 where that is in the same piece, else no_label
  std::vector<int32_t> positions;  // from 0 in each piece
  std::vector<Piece> pieces;       // in order, without gaps
  int64_t answer_count = 0;        // the sequence's denominator
  int64_t live_tokens = 0;
};

// Used by one thread at a time.
class SequenceSet {
 public:
  SequenceSet(std::unique_ptr<DocumentSource> documents, const DataSettings& settings);

  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(starts_.size()); }  // sequences in an epoch

  [[nodiscard]] int64_t documents() const { return documents_->count(); }
  [[nodiscard]] int64_t tokens() const { return tokens_; }      // of all documents
  [[nodiscard]] int64_t left_out() const { return left_out_; }  // of these, beyond the end of a document's one sequence

  // Which sequence is the `position`-th of training (from 0), epochs following one another, each in its own order if
  // shuffled.
  [[nodiscard]] int64_t at(int64_t position) const;

  [[nodiscard]] Sequence read(int64_t index) const;

 private:
  // Where a sequence begins: a document and an offset in it.
  struct Start {
    int64_t document = 0, offset = 0;
  };

  std::unique_ptr<DocumentSource> documents_;
  DataSettings settings_;
  std::vector<Start> starts_;
  int64_t tokens_ = 0, left_out_ = 0;
  mutable int64_t epoch_ = -1;  // whose order is in order_
  mutable std::vector<int64_t> order_;
};

}  // namespace annulus
