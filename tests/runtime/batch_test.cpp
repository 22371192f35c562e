// What each rank is handed: rows of arrays that were finished in global order.
#include "runtime/batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "runtime/data/sequences.h"

namespace annulus {
namespace {

// Documents of the tokens 0, 1, 2, ... one after the other.
class Counting final : public DocumentSource {
 public:
  explicit Counting(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}
  [[nodiscard]] int64_t count() const override { return static_cast<int64_t>(lengths_.size()); }
  [[nodiscard]] int64_t length(int64_t document) const override { return lengths_[static_cast<size_t>(document)]; }
  void read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const override {
    const int64_t before = std::accumulate(lengths_.begin(), lengths_.begin() + document, int64_t{0});
    std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(before + first));
    std::iota(labels.begin(), labels.end(), static_cast<int32_t>(before + first));
  }

 private:
  std::vector<int64_t> lengths_;
};

struct RankRows {
  std::vector<int32_t> tokens, answers;
  std::vector<KeyRanges> mask;
  std::vector<float> sine;
  int64_t answer_count, live_tokens;
};

template <class T>
std::vector<T> values(const View& view) {
  const auto* begin = static_cast<const T*>(view.data());
  return {begin, begin + view.bytes() / static_cast<int64_t>(sizeof(T))};
}

RankRows rows_of(const std::vector<int64_t>& documents, int64_t length, int ranks, int rank, int64_t window = 0) {
  Settings settings;
  settings.data = {.train = {}, .sequence_length = length, .shuffle = false, .pad_token_id = 99};
  ModelConfig model;
  model.head_dim = 2;
  model.rope_theta = 1;  // the angle of the only pair is the position
  model.layer_windows = {window};
  const auto device = make_cpu_device({.threads = 1, .poison = true});
  const Mesh mesh{.data_size = 1, .context_size = ranks, .rank = rank};
  const BatchBuilder builder(settings, model, mesh, *device);
  const SequenceSet set(std::make_unique<Counting>(documents), settings.data);
  const std::vector<std::optional<Sequence>> sequences = {set.read(0)};
  const MicroBatch batch = builder.build(sequences, {});
  return {values<int32_t>(batch.tokens),
          values<int32_t>(batch.answers),
          values<KeyRanges>(batch.masks.at(window).ranges),
          values<float>(batch.sine),
          batch.answer_count,
          batch.live_tokens};
}

void expect_positions(const RankRows& rows, const std::vector<int>& positions) {
  ASSERT_EQ(rows.sine.size(), positions.size());
  for (size_t i = 0; i < positions.size(); ++i) EXPECT_NEAR(rows.sine[i], std::sin(positions[i]), 1e-6);
}

using Ints = std::vector<int32_t>;

TEST(Batch, ShiftsLabelsBeforeTheCut) {
  const RankRows first = rows_of({8}, 8, 2, 0), second = rows_of({8}, 8, 2, 1);
  EXPECT_EQ(first.tokens, (Ints{0, 1, 6, 7}));
  EXPECT_EQ(first.answers, (Ints{1, 2, 7, no_label}));
  EXPECT_EQ(second.answers, (Ints{3, 4, 5, 6}));
  EXPECT_EQ(first.answer_count, 3);
  EXPECT_EQ(second.answer_count, 4);
}

TEST(Batch, EndsAnswersAndStartsPositionsWhereDocumentsMeet) {
  const RankRows first = rows_of({3, 5}, 8, 2, 0), second = rows_of({3, 5}, 8, 2, 1);
  EXPECT_EQ(first.answers, (Ints{1, 2, 7, no_label}));
  EXPECT_EQ(second.answers, (Ints{no_label, 4, 5, 6}));
  expect_positions(first, {0, 1, 3, 4});
  expect_positions(second, {2, 0, 1, 2});
  EXPECT_EQ(second.mask[0], (KeyRanges{0, 3, 3, 3}));  // row 2, the end of the first document
  EXPECT_EQ(second.mask[1], (KeyRanges{3, 4, 4, 4}));  // row 3, the start of the second
}

TEST(Batch, PadsWithRowsThatSeeNothingAndAnswerNothing) {
  const RankRows first = rows_of({7}, 7, 4, 0);  // padded to 8: rank 0 holds rows 0 and 7
  EXPECT_EQ(first.tokens, (Ints{0, 99}));
  EXPECT_EQ(first.answers, (Ints{1, no_label}));
  EXPECT_EQ(first.mask[1], KeyRanges{});
  EXPECT_EQ(first.live_tokens, 1);
}

TEST(Batch, CountsAWindowWithTheTokenItself) {
  const RankRows rows = rows_of({16}, 16, 1, 0, 4);
  int64_t pairs = 0;
  for (const KeyRanges& r : rows.mask) pairs += r.end0 - r.begin0;
  EXPECT_EQ(pairs, 58);
  EXPECT_EQ(rows.mask[10], (KeyRanges{7, 11, 11, 11}));
}

}  // namespace
}  // namespace annulus
