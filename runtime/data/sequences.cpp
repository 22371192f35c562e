#include "runtime/data/sequences.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/error.h"
#include "kernels/narrow.h"
#include "kernels/philox.h"

namespace annulus {

namespace {

// The order of one epoch of `count` sequences: they are sorted by the first 64 random bits of (epoch, sequence).
std::vector<int64_t> shuffled_order(int64_t count, int64_t epoch, uint64_t seed) {
  std::vector<std::pair<uint64_t, int64_t>> keys;
  keys.reserve(narrow<size_t>(count));
  for (int64_t index = 0; index < count; ++index) {
    const auto sample = static_cast<uint64_t>(epoch * count + index);
    const Philox::Words words = Philox::words(seed, RandomStream::shuffle, sample, 0);
    keys.emplace_back(uint64_t{words[0]} << 32 | words[1], index);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int64_t> order(keys.size());
  std::transform(keys.begin(), keys.end(), order.begin(), [](const auto& key) { return key.second; });
  return order;
}

// The answers of one piece from the labels at its rows: row i answers what is labelled at i + 1.
void shift(std::span<int32_t> labels) {
  std::shift_left(labels.begin(), labels.end(), 1);
  labels.back() = no_label;
}

}  // namespace

SequenceSet::SequenceSet(std::unique_ptr<DocumentSource> documents, const DataSettings& settings)
    : documents_(std::move(documents)), settings_(settings) {
  const int64_t length = settings_.sequence_length;
  require(length >= 1 && std::in_range<int32_t>(length), "a sequence has at least one row and at most 2^31-1");
  int64_t offset = 0;  // where the next sequence begins, counted from the current document's first token
  for (int64_t document = 0; document < documents_->count(); ++document) {
    tokens_ += documents_->length(document);
    if (settings_.packing == Packing::none) {
      starts_.push_back({document, 0});
      left_out_ += std::max<int64_t>(0, documents_->length(document) - length);
      continue;
    }
    for (; offset < documents_->length(document); offset += length) starts_.push_back({document, offset});
    offset -= documents_->length(document);
  }
  require(!starts_.empty(), "a source holds at least one document");
}

int64_t SequenceSet::at(int64_t position) const {
  const int64_t epoch = position / count();
  const int64_t place = position % count();
  if (!settings_.shuffle) return place;
  if (epoch != epoch_) {
    order_ = shuffled_order(count(), epoch, settings_.seed);
    epoch_ = epoch;
  }
  return order_[narrow<size_t>(place)];
}

Sequence SequenceSet::read(int64_t index) const {
  require(index >= 0 && index < count(), "a sequence is one of the set");
  const int64_t length = settings_.sequence_length;
  Sequence sequence;
  sequence.tokens.assign(narrow<size_t>(length), settings_.pad_token_id);
  sequence.answers.assign(narrow<size_t>(length), no_label);
  sequence.positions.assign(narrow<size_t>(length), 0);

  auto [document, offset] = starts_[narrow<size_t>(index)];
  int64_t row = 0;
  do {
    const int64_t rows = std::min(length - row, documents_->length(document) - offset);
    const auto tokens = std::span(sequence.tokens).subspan(narrow<size_t>(row), narrow<size_t>(rows));
    const auto answers = std::span(sequence.answers).subspan(narrow<size_t>(row), narrow<size_t>(rows));
    const auto positions = std::span(sequence.positions).subspan(narrow<size_t>(row), narrow<size_t>(rows));
    documents_->read(document, offset, tokens, answers);
    shift(answers);
    std::iota(positions.begin(), positions.end(), 0);
    sequence.pieces.push_back({row, row + rows});
    row += rows;
    ++document;
    offset = 0;
  } while (settings_.packing == Packing::concat && row < length && document < documents_->count());

  sequence.live_tokens = row;
  sequence.answer_count = length - std::count(sequence.answers.begin(), sequence.answers.end(), no_label);
  return sequence;
}

}  // namespace annulus
