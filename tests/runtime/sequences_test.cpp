#include "runtime/data/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/error.h"

namespace annulus {
namespace {

using Ids = std::vector<int32_t>;

// Documents in memory, with labels of their own.
class MemoryDocuments final : public DocumentSource {
 public:
  struct Document {
    Ids tokens, labels;
  };

  explicit MemoryDocuments(std::vector<Document> documents) : documents_(std::move(documents)) {}

  int64_t count() const override { return std::ssize(documents_); }
  int64_t length(int64_t document) const override { return std::ssize(at(document).tokens); }
  void read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const override {
    ASSERT_LE(first + std::ssize(tokens), length(document));
    std::copy_n(at(document).tokens.begin() + first, tokens.size(), tokens.begin());
    std::copy_n(at(document).labels.begin() + first, labels.size(), labels.begin());
  }

 private:
  const Document& at(int64_t document) const { return documents_.at(static_cast<size_t>(document)); }

  std::vector<Document> documents_;
};

struct Options {
  int64_t length = 8;
  Packing packing = Packing::concat;
  bool shuffle = false;
  uint64_t seed = 1;
};

// Documents whose labels are their tokens: 0, 1, 2, ... counted through all of them.
SequenceSet count_through(const std::vector<int64_t>& lengths, const Options& options) {
  std::vector<MemoryDocuments::Document> documents;
  int32_t token = 0;
  for (const int64_t length : lengths) {
    Ids ids;
    for (int64_t i = 0; i < length; ++i) ids.push_back(token++);
    documents.push_back({ids, ids});
  }
  DataSettings settings;
  settings.sequence_length = options.length;
  settings.packing = options.packing;
  settings.shuffle = options.shuffle;
  settings.seed = options.seed;
  settings.pad_token_id = 77;
  return {std::make_unique<MemoryDocuments>(std::move(documents)), settings};
}

constexpr int32_t none = no_label;

TEST(SequenceSet, ShiftsLabelsBeforeAnythingIsCut) {
  const Sequence sequence = count_through({8}, {}).read(0);
  EXPECT_EQ(sequence.tokens, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(sequence.answers, (Ids{1, 2, 3, 4, 5, 6, 7, none}));
  EXPECT_EQ(sequence.positions, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(sequence.pieces, (std::vector<Piece>{{0, 8}}));
  EXPECT_EQ(sequence.answer_count, 7);
  EXPECT_EQ(sequence.live_tokens, 8);
}

TEST(SequenceSet, AnswersNothingAcrossTheSeamOfTwoDocuments) {
  const Sequence sequence = count_through({3, 5}, {}).read(0);
  EXPECT_EQ(sequence.tokens, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(sequence.answers, (Ids{1, 2, none, 4, 5, 6, 7, none}));
  EXPECT_EQ(sequence.positions, (Ids{0, 1, 2, 0, 1, 2, 3, 4}));
  EXPECT_EQ(sequence.pieces, (std::vector<Piece>{{0, 3}, {3, 8}}));
  EXPECT_EQ(sequence.answer_count, 6);
}

TEST(SequenceSet, BeginsANewPieceWhereADocumentIsCut) {
  const SequenceSet set = count_through({2, 7, 1, 3}, {.length = 5});
  ASSERT_EQ(set.count(), 3);
  const Sequence first = set.read(0), second = set.read(1), third = set.read(2);
  EXPECT_EQ(first.tokens, (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(first.answers, (Ids{1, none, 3, 4, none}));
  EXPECT_EQ(first.positions, (Ids{0, 1, 0, 1, 2}));
  EXPECT_EQ(first.pieces, (std::vector<Piece>{{0, 2}, {2, 5}}));
  EXPECT_EQ(second.tokens, (Ids{5, 6, 7, 8, 9}));
  EXPECT_EQ(second.answers, (Ids{6, 7, 8, none, none}));
  EXPECT_EQ(second.positions, (Ids{0, 1, 2, 3, 0}));
  EXPECT_EQ(second.pieces, (std::vector<Piece>{{0, 4}, {4, 5}}));
  EXPECT_EQ(third.tokens, (Ids{10, 11, 12, 77, 77}));
  EXPECT_EQ(third.answers, (Ids{11, 12, none, none, none}));
  EXPECT_EQ(third.positions, (Ids{0, 1, 2, 0, 0}));
  EXPECT_EQ(third.pieces, (std::vector<Piece>{{0, 3}}));
  EXPECT_EQ(third.answer_count, 2);
  EXPECT_EQ(third.live_tokens, 3);
}

TEST(SequenceSet, CutsAsManySequencesAsTheTokensFill) {
  EXPECT_EQ(count_through({10}, {.length = 5}).count(), 2);
  EXPECT_EQ(count_through({11}, {.length = 5}).count(), 3);
  EXPECT_EQ(count_through({5, 5}, {.length = 5}).count(), 2);
  EXPECT_EQ(count_through({1, 1, 1}, {.length = 5}).count(), 1);
  EXPECT_EQ(count_through({4}, {.length = 1}).count(), 4);
}

TEST(SequenceSet, HoldsEveryTokenExactlyOnceWhateverTheLengths) {
  const std::vector<int64_t> lengths = {1, 13, 2, 5, 31, 1, 1, 8, 4};  // 66 tokens
  for (int64_t length = 1; length <= 70; ++length) {
    const SequenceSet set = count_through(lengths, {.length = length});
    ASSERT_EQ(set.count(), (66 + length - 1) / length);
    int32_t next = 0;
    for (int64_t index = 0; index < set.count(); ++index) {
      const Sequence sequence = set.read(index);
      for (int64_t row = 0; row < sequence.live_tokens; ++row) {
        ASSERT_EQ(sequence.tokens[static_cast<size_t>(row)], next++) << length << ' ' << index << ' ' << row;
      }
      ASSERT_EQ(sequence.pieces.back().end, sequence.live_tokens);
    }
    ASSERT_EQ(next, 66);
  }
}

TEST(SequenceSet, WithoutPackingHoldsOneDocumentCutAtTheLength) {
  const SequenceSet set = count_through({3, 7, 1}, {.length = 5, .packing = Packing::none});
  ASSERT_EQ(set.count(), 3);
  const Sequence first = set.read(0), second = set.read(1), third = set.read(2);
  EXPECT_EQ(first.tokens, (Ids{0, 1, 2, 77, 77}));
  EXPECT_EQ(first.answers, (Ids{1, 2, none, none, none}));
  EXPECT_EQ(first.live_tokens, 3);
  EXPECT_EQ(second.tokens, (Ids{3, 4, 5, 6, 7}));
  EXPECT_EQ(second.answers, (Ids{4, 5, 6, 7, none}));
  EXPECT_EQ(second.pieces, (std::vector<Piece>{{0, 5}}));
  EXPECT_EQ(third.tokens, (Ids{10, 77, 77, 77, 77}));
  EXPECT_EQ(third.answer_count, 0);
  EXPECT_EQ(third.pieces, (std::vector<Piece>{{0, 1}}));
}

TEST(SequenceSet, CountsOnlyLabelsThatAreAnswers) {
  DataSettings settings;
  settings.sequence_length = 6;
  settings.shuffle = false;
  const SequenceSet set(std::make_unique<MemoryDocuments>(std::vector<MemoryDocuments::Document>{
                            {{10, 11, 12, 13}, {20, none, 22, none}}, {{14, 15}, {24, 25}}}),
                        settings);
  const Sequence sequence = set.read(0);
  EXPECT_EQ(sequence.tokens, (Ids{10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(sequence.answers, (Ids{none, 22, none, none, 25, none}));
  EXPECT_EQ(sequence.answer_count, 2);
}

TEST(SequenceSet, WrapsAroundAtTheEndOfTheData) {
  const SequenceSet set = count_through({3}, {.length = 1});
  std::vector<int64_t> order;
  for (int64_t position = 0; position < 7; ++position) order.push_back(set.at(position));
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0}));
}

// Orders from another implementation of the generator (integers of any size, checked with its published answer).
TEST(SequenceSet, ShufflesEachEpochAsDefined) {
  struct Known {
    int64_t count;
    uint64_t seed;
    int64_t epoch;
    std::vector<int64_t> order;
  };
  const std::vector<Known> known = {
      {8, 1, 0, {5, 7, 2, 6, 3, 0, 4, 1}},
      {8, 1, 1, {0, 7, 2, 4, 1, 5, 3, 6}},
      {8, 1, 2, {1, 3, 2, 4, 5, 0, 7, 6}},
      {8, 2, 0, {7, 5, 6, 1, 2, 0, 4, 3}},
      {8, 0x123456789abcdef0, 1, {7, 6, 4, 2, 0, 3, 5, 1}},
      {3, 1, 2, {1, 2, 0}},
      {8, 1, int64_t{1} << 40, {2, 6, 0, 7, 4, 3, 5, 1}},  // the sample's upper word counts
  };
  for (const Known& epoch : known) {
    const SequenceSet set = count_through({epoch.count}, {.length = 1, .shuffle = true, .seed = epoch.seed});
    std::vector<int64_t> order;
    for (int64_t i = 0; i < epoch.count; ++i) order.push_back(set.at(epoch.epoch * epoch.count + i));
    EXPECT_EQ(order, epoch.order) << epoch.count << ' ' << epoch.seed << ' ' << epoch.epoch;
  }
}

TEST(SequenceSet, HasAnOrderThatDoesNotDependOnWhatWasAskedBefore) {
  const SequenceSet set = count_through({8}, {.length = 1, .shuffle = true});
  EXPECT_EQ(set.at(8), 0);
  EXPECT_EQ(set.at(0), 5);
  EXPECT_EQ(set.at(17), 3);
  EXPECT_EQ(set.at(1), 7);
}

TEST(SequenceSet, RefusesALengthThatIsNone) {
  EXPECT_THROW(count_through({3}, {.length = 0}), InternalError);
}

}  // namespace
}  // namespace annulus
