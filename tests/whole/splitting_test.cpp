// How sequences and batches are split between ranks and micro-batches does not show in loss, gradients and weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/tensors.h"
#include "tests/whole/compare.h"
#include "tests/whole/metrics.h"
#include "tests/whole/tiny_run.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

void expect_same(const fs::path& output, const fs::path& reference) {
  const Bounds& bounds = float32_bounds;
  const fs::path gradient = reference / "gradient.safetensors";
  std::vector<Deviation> all = compare_metrics(output / "metrics.jsonl", reference / "metrics.jsonl", bounds);
  for (const Deviation& deviation : compare_gradients(output / "gradient.safetensors", gradient, bounds)) {
    all.push_back(deviation);
  }
  const Deviation largest = worst(all);
  EXPECT_LE(largest.ratio, 1) << largest.figure << " of " << output.filename();
}

Words contexts(int size, const std::string& layout) {
  return {"parallel.context_parallel_size=" + std::to_string(size), "parallel.layout=" + layout};
}

const Words groups = {"parallel.context_parallel_size=1"};

// A model whose layers add nothing to the residual stream, so that a token alone decides: answer 2 to token 0 costs
// `first`, answer 3 to token 1 costs `second`. A loss of l is that of one logit z among V − 1 of 0: z = ln((V−1)/(e^l −
// 1)).
HostTensors weights_with_losses(const TinyModel& model, double first, double second) {
  HostTensors weights = random_weights(model, 3);
  for (auto& [name, tensor] : weights) {
    if (name.find("o_proj") != std::string::npos || name.find("down_proj") != std::string::npos) {
      std::fill(tensor.values.begin(), tensor.values.end(), 0.0F);
    }
  }
  const auto width = static_cast<size_t>(model.hidden);
  const double others = static_cast<double>(model.vocabulary - 1), root = std::sqrt(static_cast<double>(width));
  std::vector<float>&embedding = weights["model.embed_tokens.weight"].values, &head = weights["lm_head.weight"].values;
  std::fill(head.begin(), head.end(), 0.0F);
  std::fill(embedding.begin(), embedding.end(), 0.0F);
  for (size_t token = 0; token < 2; ++token) {
    const double logit = std::log(others / std::expm1(token == 0 ? first : second));
    embedding[token * width + token] = 1000.0F;  // normalised to root: far above what the norm's eps could change
    head[(token + 2) * width + token] = static_cast<float>(logit / root);
  }
  std::fill(weights["model.norm.weight"].values.begin(), weights["model.norm.weight"].values.end(), 1.0F);
  return weights;
}

// Of `length` tokens; token 0 or 1 at each row that is given an answer, with that token's answer.
TinyDocument document_with_answers(size_t length, const std::vector<size_t>& rows_of_0,
                                   const std::vector<size_t>& rows_of_1) {
  TinyDocument document{std::vector<int32_t>(length, 5), std::vector<int32_t>(length, -100)};
  const auto answer = [&](size_t row, int32_t token) {
    document.input_ids[row] = token;
    document.labels[row + 1] = token + 2;
  };
  for (const size_t row : rows_of_0) answer(row, 0);
  for (const size_t row : rows_of_1) answer(row, 1);
  return document;
}

const TinyModel untied{.tied = false};

TEST(Loss, IsTheMeanOverAllAnswersWhereverInTheSequenceTheyLie) {
  const std::vector<TinyDocument> documents = {document_with_answers(12, {0, 1, 2, 3, 4}, {8})};
  const TinyRun run(untied, documents, {"data.sequence_length=12", "train.steps=1"});
  write_tensors(run.weights(), weights_with_losses(untied, 1, 7));
  const fs::path one = run.train("one", 1);
  EXPECT_NEAR(metrics_of(one).at(0).at("loss").get<double>(), 2.0, 4e-6);  // not the mean of 1 and 7
  for (const int ranks : {2, 3}) {
    const fs::path several = run.train(std::to_string(ranks), ranks, contexts(ranks, "contiguous"));
    EXPECT_NEAR(metrics_of(several).at(0).at("loss").get<double>(), 2.0, 4e-6);
    expect_same(several, one);
  }
}

TEST(Loss, IsTheMeanOverAllAnswersOfAStepsMicroBatches) {
  const std::vector<TinyDocument> documents = {document_with_answers(8, {}, {3}),
                                               document_with_answers(8, {0, 2, 6}, {})};
  const TinyRun run(untied, documents,
                    {"data.sequence_length=8", "data.packing=none", "train.steps=1", "train.global_batch_size=2"});
  write_tensors(run.weights(), weights_with_losses(untied, 1, 3));
  const fs::path together = run.train("together", 1, {"train.micro_batch_size=2"});
  EXPECT_NEAR(metrics_of(together).at(0).at("loss").get<double>(), 1.5, 3e-6);  // not the mean of 3 and 1
  for (const fs::path& apart : {run.train("accumulated", 1), run.train("groups", 2, groups)}) {
    EXPECT_NEAR(metrics_of(apart).at(0).at("loss").get<double>(), 1.5, 3e-6);
    expect_same(apart, together);
  }
}

TEST(Splitting, ChangesNothingWhereAPromptFillsWholeRanks) {
  std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{32, 32}, 101, 4);
  for (TinyDocument& document : documents) std::fill_n(document.labels.begin(), 26, -100);
  const TinyRun run({}, documents, {"data.sequence_length=32", "train.steps=2"});
  const fs::path one = run.train("one", 1);
  expect_same(run.train("two", 2, contexts(2, "contiguous")), one);
  expect_same(run.train("four", 4, contexts(4, "contiguous")), one);
}

TEST(Splitting, ChangesNothingWhereADataGroupHasNoAnswer) {
  std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{20, 20}, 101, 5);
  std::fill(documents[1].labels.begin(), documents[1].labels.end(), -100);
  const TinyRun run({}, documents, {"data.sequence_length=20", "train.steps=2", "train.global_batch_size=2"});
  expect_same(run.train("groups", 2, groups), run.train("one", 1));
}

TEST(Splitting, ChangesNothingWhereTheLengthIsNoMultipleOfTheRanks) {
  const std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{5, 300, 393}, 101, 6);
  const TinyRun run({}, documents, {"train.steps=1", "debug.poison=true"});
  for (const std::string length : {"7", "698"}) {
    const Words settings = {"data.sequence_length=" + length};
    const fs::path one = run.train(length + "-one", 1, settings);
    for (const std::string layout : {"zigzag", "contiguous"}) {
      Words split = contexts(length == "7" ? 2 : 4, layout);
      split.push_back(settings.front());
      expect_same(run.train(length + "-" + layout, length == "7" ? 2 : 4, split), one);
    }
  }
}

// Rows of a vocabulary that cannot be cut evenly: the last ones are trained like the others.
TEST(Splitting, UpdatesEveryRowOfATiedEmbedding) {
  const TinyModel model{.vocabulary = 101, .tied = true};
  const std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{200, 200}, model.vocabulary, 7);
  const TinyRun run(model, documents, {"data.sequence_length=100", "train.steps=1", "optimizer.weight_decay=0"});
  const fs::path one = run.train("one", 1);
  const std::vector<float> start = read_tensors(run.weights()).at("model.embed_tokens.weight").values;
  const auto row_distance = [&](const std::vector<float>& a, const std::vector<float>& b, size_t row) {
    double sum = 0;
    for (size_t i = row * 32; i < (row + 1) * 32; ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
    return std::sqrt(sum);
  };
  const auto gradient_of = [](const fs::path& output) {
    return read_tensors(output / "gradient.safetensors").at("model.embed_tokens.weight").values;
  };
  const std::vector<float> reference = gradient_of(one), zero(reference.size());
  for (const int ranks : {2, 3}) {
    const fs::path output = run.train(std::to_string(ranks), ranks);
    const std::vector<float> gradient = gradient_of(output);
    const std::vector<float> end =
        read_tensors(output / "model" / "model.safetensors").at("model.embed_tokens.weight").values;
    for (size_t row = 0; row < 101; ++row) {
      EXPECT_GT(row_distance(end, start, row), 0) << "row " << row << ", " << ranks << " ranks";
      EXPECT_LE(row_distance(gradient, reference, row), 2e-5 * row_distance(reference, zero, row)) << "row " << row;
    }
  }
}

// With a large eps, AdamW's first step is nearly proportional to the clipped gradient, so that the weights show the
// factor.
HostTensors after_one_step(const HostTensors& start, const HostTensors& gradient, double clip_factor, double rate,
                           double decay, double eps) {
  HostTensors end = start;
  for (auto& [name, tensor] : end) {
    const double kept = tensor.shape.size() == 2 ? 1 - rate * decay : 1;
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const double g = gradient.at(name).values[i] * clip_factor;
      tensor.values[i] = static_cast<float>(tensor.values[i] * kept - rate * g / (std::abs(g) + eps));
    }
  }
  return end;
}

TEST(Splitting, LeavesOneNormAndOneClipFactor) {
  const std::vector<TinyDocument> documents = random_documents(std::vector<int64_t>{50}, 101, 8);
  const TinyRun run({}, documents,
                    {"data.sequence_length=50", "train.steps=1", "optimizer.max_grad_norm=0.05",
                     "optimizer.learning_rate=100", "optimizer.weight_decay=0.001", "optimizer.eps=1"});
  const HostTensors start = read_tensors(run.weights());
  for (const int ranks : {1, 2, 3}) {
    const fs::path output = run.train(std::to_string(ranks), ranks);
    const HostTensors gradient = read_tensors(output / "gradient.safetensors");
    double squares = 0;
    for (const auto& [name, tensor] : gradient) {
      for (const double value : tensor.values) squares += value * value;
    }
    const double norm = std::sqrt(squares);
    ASSERT_GT(norm, 0.1);  // so that it is clipped
    EXPECT_NEAR(metrics_of(output).at(0).at("grad_norm").get<double>(), norm, 1e-6 * norm);
    const fs::path expected = output / "expected.safetensors";
    write_tensors(expected, after_one_step(start, gradient, 0.05 / (norm + 1e-6), 100, 0.001, 1));
    const Deviation largest = worst(compare_weights(output / "model" / "model.safetensors", expected, run.weights(),
                                                    output / "gradient.safetensors", {.weights = 2e-5}));
    EXPECT_LE(largest.ratio, 1) << largest.figure << ", " << ranks << " ranks";
  }
}

// Answers of all sequences: to the next token in the same document and sequence.
int64_t count_answers(const std::vector<TinyDocument>& documents, size_t sequence_length) {
  int64_t answers = 0;
  size_t slot = 0;
  for (const TinyDocument& document : documents) {
    for (size_t i = 0; i < document.labels.size(); ++i, ++slot) {
      if (i > 0 && slot % sequence_length != 0 && document.labels[i] != -100) ++answers;
    }
  }
  return answers;
}

TEST(Splitting, TrainsOnEverySequenceOfAnEpochOnce) {
  const std::vector<int64_t> lengths = {100, 7,  1,
                                        90,  35, 74};  // 307 tokens: 8 sequences of 40, the last with 13 dead slots
  const std::vector<TinyDocument> documents = random_documents(lengths, 101, 9);
  const TinyRun run({}, documents,
                    {"data.sequence_length=40", "data.shuffle=true", "train.steps=2", "train.global_batch_size=4"});
  const fs::path one = run.train("one", 1);
  for (const std::string micro_batch : {"1", "2"}) {
    const Words settings = {"parallel.data_parallel_size=2", "train.micro_batch_size=" + micro_batch};
    const fs::path output = run.train("two-groups-of-two-" + micro_batch, 4, settings);
    int64_t tokens = 0, answers = 0;
    for (const nlohmann::json& step : metrics_of(output)) {
      tokens += step.at("tokens").get<int64_t>();
      answers += step.at("label_tokens").get<int64_t>();
    }
    EXPECT_EQ(tokens, 307);
    EXPECT_EQ(answers, count_answers(documents, 40));
    expect_same(output, one);
  }
}

}  // namespace
}  // namespace annulus
