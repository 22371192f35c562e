#include <cmath>
#include <limits>

#include "tests/kernels/devices.h"
#include "tests/support/attention_reference.h"

namespace annulus::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Largest relative error of a tensor. In float32 with scores of a few units: do·v and δ share the offsets of the
// inputs, and their difference carries the rounding of both several times over. In bfloat16: two of its steps of 2^-8,
// since a rounding of the stored output enters the query gradient amplified in the same way.
constexpr double float32_tolerance = 5e-6;
constexpr double bfloat16_tolerance = 0x1p-7;

double tolerance(DType dtype) {
  return dtype == DType::float32 ? float32_tolerance : bfloat16_tolerance;
}

// On a device whose memory is poisoned.
Answers run(const Problem& problem, const Calls& calls = {}) {
  const std::unique_ptr<Device> device = make_test_device();
  return run(*device, problem, calls);
}

void set_row(std::vector<double>& values, int64_t row, int64_t width, double x) {
  std::fill_n(values.begin() + row * width, width, x);
}

std::vector<double> row(const std::vector<double>& values, int64_t i, int64_t width) {
  return {values.begin() + i * width, values.begin() + (i + 1) * width};
}

void expect_same_bits(const Answers& a, const Answers& b) {
  EXPECT_EQ(a.output, b.output);
  EXPECT_EQ(a.log_sum, b.log_sum);
  EXPECT_EQ(a.query_gradient, b.query_gradient);
  EXPECT_EQ(a.key_gradient, b.key_gradient);
  EXPECT_EQ(a.value_gradient, b.value_gradient);
}

TEST(Attention, MatchesFloat64UnderEveryMaskAndLength) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int64_t rows : {1, 2, 7, 33, 300}) {
      for (const NamedMask& mask : every_mask(rows)) {
        SCOPED_TRACE(mask.name + ", rows " + std::to_string(rows) + ", " + name_of(dtype));
        const Problem problem = make_problem(mask.ranges, rows, 2, 2, 16, dtype);
        expect_close(problem, run(problem), reference(problem), tolerance(dtype));
      }
    }
  }
}

TEST(Attention, MatchesFloat64ForEveryHeadDimAndGroup) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const auto& [head_dim, group] : {std::pair{8, 8},
                                          {16, 3},
                                          {24, 1},
                                          {24, 2},
                                          {24, 3},
                                          {24, 8},
                                          {32, 3},
                                          {32, 5},
                                          {64, 2},
                                          {96, 1},
                                          {128, 8},
                                          {256, 2}}) {
      SCOPED_TRACE("head_dim " + std::to_string(head_dim) + ", group " + std::to_string(group) + ", " + name_of(dtype));
      const Problem problem = make_problem(random_mask(70, 5), 70, 2, group, head_dim, dtype);
      expect_close(problem, run(problem), reference(problem), tolerance(dtype));
    }
  }
}

TEST(Attention, MatchesFloat64OverSeveralTilesOfQueriesAndKeys) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const auto& [head_dim, group] : {std::pair{8, 2}, {32, 3}}) {
      for (const NamedMask& mask : every_mask(1100)) {
        SCOPED_TRACE(mask.name + ", head_dim " + std::to_string(head_dim) + ", " + name_of(dtype));
        Problem problem = make_problem(mask.ranges, 1100, 1, group, head_dim, dtype);
        // With nearly equal probabilities over 1100 keys the query gradient would be a small difference of large sums,
        // whose relative error says little.
        set_score_size(problem, 8);
        expect_close(problem, run(problem), reference(problem), tolerance(dtype));
      }
    }
  }
}

TEST(Attention, HoldsForScoresUpTo80) {
  for (const NamedMask& mask : every_mask(120)) {
    SCOPED_TRACE(mask.name);
    Problem problem = make_problem(mask.ranges, 120, 1, 2, 64, DType::float32);
    set_score_size(problem, 80);
    // A score of 80 is off by some 1e-5 in float32, and so is, relatively, its probability.
    expect_close(problem, run(problem), reference(problem), 2e-5);
  }
}

TEST(Attention, IsResumedWithItsKeysInAnyPiecesAndOrder) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int64_t head_dim : {24, 32}) {
      for (const NamedMask& mask : every_mask(150)) {
        Problem problem = make_problem(mask.ranges, 150, 2, 2, head_dim, dtype);
        const Answers expected = reference(problem);
        for (uint32_t seed = 1; seed <= 5; ++seed) {
          SCOPED_TRACE(mask.name + ", head_dim " + std::to_string(head_dim) + ", calls " + std::to_string(seed) + ", " +
                       name_of(dtype));
          const Calls calls = random_calls(problem.keys, seed, seed);
          expect_close(problem, run(problem, calls), expected, tolerance(dtype));
        }
      }
    }
  }
}

TEST(Attention, IsResumedThroughScoresUpTo80) {
  Problem problem = make_problem(causal_mask(200), 200, 1, 3, 32, DType::float32);
  set_score_size(problem, 80);
  const Answers expected = reference(problem);
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    expect_close(problem, run(problem, random_calls(200, 5, seed)), expected, 2e-5);
  }
}

TEST(Attention, CarriesItsStateThroughCallsWithoutKeys) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Problem problem = make_problem(causal_mask(40), 40, 2, 2, 32, dtype);
    const Answers once = run(problem);
    for (const Calls& calls : {Calls{{}, {{0, 40}}}, Calls{{{0, 40}}, {}}, Calls{{}, {}, {{0, 40}}, {}, {{7, 7}}}}) {
      expect_same_bits(run(problem, calls), once);
    }
  }
}

// More slices in a call than a device may take at once.
TEST(Attention, TakesAnyNumberOfSlices) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Problem problem = make_problem(causal_mask(150), 150, 1, 2, 32, dtype);
    Calls calls(2);
    for (int64_t i = 0; i < 150; ++i) calls[static_cast<size_t>(i % 2)].push_back({i, i + 1});
    expect_close(problem, run(problem, calls), reference(problem), tolerance(dtype));
  }
}

TEST(Attention, WithoutAnyKeysIsZeroWithLogSumMinusInfinity) {
  const Problem problem = make_problem(full_mask(5), 5, 1, 2, 8, DType::float32);
  for (const Calls& calls : {Calls{{}}, Calls{{}, {}}}) {
    const Answers answers = run(problem, calls);
    EXPECT_EQ(answers.output, std::vector<double>(80, 0.0));
    EXPECT_EQ(answers.log_sum, std::vector<double>(10, -infinity));
    EXPECT_EQ(answers.query_gradient, std::vector<double>(80, 0.0));
  }
}

// One query that meets one key in each call, with the given scores; −infinity: it does not see the key.
Answers run_scores(const std::vector<double>& scores, const std::vector<double>& values) {
  const auto keys = static_cast<int64_t>(scores.size());
  Problem problem = make_problem({KeyRanges{}}, keys, 1, 1, 8, DType::float32);
  Calls calls;
  int32_t seen = 0;
  for (int64_t key = 0; key < keys; ++key) {
    const double score = scores[static_cast<size_t>(key)];
    set_row(problem.key, key, 8, score == -infinity ? 1.0 : score / 8);
    set_row(problem.value, key, 8, values[static_cast<size_t>(key)]);
    calls.push_back({{key, key + 1}});
    seen += score == -infinity ? 0 : 1;
  }
  // The keys that are not seen come first.
  problem.ranges[0] = {static_cast<int32_t>(keys) - seen, static_cast<int32_t>(keys), static_cast<int32_t>(keys),
                       static_cast<int32_t>(keys)};
  set_row(problem.query, 0, 8, 1.0);
  problem.scale = 1;
  return run(problem, calls);
}

TEST(Attention, MergesLogSumsThatAreFarApartOrInfinite) {
  for (const auto& [scores, values] : {std::pair<std::vector<double>, std::vector<double>>{{-100, 20}, {7, 3}},
                                       std::pair<std::vector<double>, std::vector<double>>{{20, -100}, {3, 7}}}) {
    const Answers answers = run_scores(scores, values);
    EXPECT_EQ(answers.log_sum[0], 20);
    EXPECT_EQ(answers.output, std::vector<double>(8, 3.0));
  }
  const Answers one = run_scores({-infinity, 3}, {7, 2});
  EXPECT_EQ(one.log_sum[0], 3);
  EXPECT_EQ(one.output, std::vector<double>(8, 2.0));
  const Answers none = run_scores({-infinity, -infinity}, {7, 2});
  EXPECT_EQ(none.log_sum[0], -infinity);
  EXPECT_EQ(none.output, std::vector<double>(8, 0.0));
  EXPECT_EQ(none.query_gradient, std::vector<double>(8, 0.0));
  EXPECT_EQ(none.key_gradient, std::vector<double>(16, 0.0));
}

TEST(Attention, UnderAWindowOfOneIsTheValueItself) {
  const Problem problem = make_problem(window_mask(50, 1), 50, 3, 1, 16, DType::float32);
  EXPECT_EQ(run(problem).output, problem.value);
}

TEST(Attention, UnderAWindowOf4Over16TokensHas58Pairs) {
  const Problem problem = make_problem(window_mask(16, 4), 16, 1, 1, 8, DType::float32);
  const Answers before = run(problem);
  int pairs = 0;
  for (int64_t key = 0; key < 16; ++key) {
    Problem changed = problem;
    set_row(changed.value, key, 8, 5.0);
    const Answers after = run(changed);
    for (int64_t i = 0; i < 16; ++i) pairs += row(after.output, i, 8) == row(before.output, i, 8) ? 0 : 1;
  }
  EXPECT_EQ(pairs, 58);
}

TEST(Attention, ChangesOnlyTheRowsThatSeeAChangedKey) {
  for (const auto& [head_dim, dtype] : {std::pair{int64_t{8}, DType::float32}, {int64_t{32}, DType::bfloat16}}) {
    const int64_t width = 2 * head_dim;
    for (const NamedMask& mask : every_mask(48)) {
      const Problem problem = make_problem(mask.ranges, 48, 1, 2, head_dim, dtype);
      const Calls calls = {{{0, 20}}, {{20, 48}}};
      const Answers before = run(problem, calls);
      for (int64_t key = 0; key < 48; ++key) {
        SCOPED_TRACE(mask.name + ", " + name_of(dtype) + ", key " + std::to_string(key));
        Problem changed = problem;
        set_row(changed.key, key, head_dim, 1.5);
        set_row(changed.value, key, head_dim, -2.0);
        const Answers after = run(changed, calls);
        for (int64_t i = 0; i < 48; ++i) {
          EXPECT_EQ(row(after.output, i, width) == row(before.output, i, width), !problem.sees(i, key)) << "row " << i;
          if (!problem.sees(i, key)) {
            EXPECT_EQ(row(after.log_sum, i, 2), row(before.log_sum, i, 2)) << "row " << i;
            EXPECT_EQ(row(after.query_gradient, i, width), row(before.query_gradient, i, width)) << "row " << i;
          }
        }
      }
    }
  }
}

TEST(Attention, IgnoresWhatDeadRowsAndUnseenKeysHold) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int64_t rows : {60, 700}) {
      for (const Ranges& ranges : {packed_mask(rows, {rows / 3, rows / 4}, rows), random_mask(rows, 3)}) {
        constexpr int64_t head_dim = 32;
        Problem problem = make_problem(ranges, rows + 50, 2, 2, head_dim, dtype);
        const Calls calls = random_calls(problem.keys, 3, 9);
        const Answers clean = run(problem, calls);
        for (const double rubbish : {nan, infinity, 3e38}) {
          for (int64_t i = 0; i < rows; ++i) {
            if (!problem.dead(i)) continue;
            set_row(problem.query, i, 4 * head_dim, rubbish);
            set_row(problem.output_gradient, i, 4 * head_dim, rubbish);
          }
          for (int64_t key = 0; key < problem.keys; ++key) {
            if (!problem.unseen(key)) continue;
            set_row(problem.key, key, 2 * head_dim, rubbish);
            set_row(problem.value, key, 2 * head_dim, rubbish);
          }
          SCOPED_TRACE(std::string(name_of(dtype)) + ", rows " + std::to_string(rows) + ", " + std::to_string(rubbish));
          expect_same_bits(run(problem, calls), clean);
        }
      }
    }
  }
}

TEST(Attention, LetsANaNInALiveRowThrough) {
  Problem problem = make_problem(causal_mask(20), 20, 1, 1, 8, DType::float32);
  problem.query[5 * 8] = nan;
  const Answers answers = run(problem);
  EXPECT_TRUE(std::isnan(answers.output[5 * 8]));
  EXPECT_TRUE(std::isnan(answers.log_sum[5]));
  EXPECT_FALSE(std::isnan(answers.output[6 * 8]));
}

TEST(Attention, GivesTheFirstKeyItsGradientFromTheLastTokenAlone) {
  Problem problem = make_problem(causal_mask(300), 300, 2, 2, 16, DType::float32);
  std::fill(problem.output_gradient.begin(), problem.output_gradient.end() - 64, 0.0);
  const Answers answers = run(problem, random_calls(300, 4, 6));
  EXPECT_GT(norm(row(answers.key_gradient, 0, 32)), 0);
  expect_close(problem, answers, reference(problem), float32_tolerance);
}

TEST(Attention, DoesNotLoseAccuracyWithTheNumberOfCalls) {
  const Problem problem = make_problem(causal_mask(512), 512, 1, 1, 64, DType::bfloat16);
  const Answers expected = reference(problem);
  const Answers once = run(problem);
  Calls calls;
  for (int64_t i = 0; i < 8; ++i) calls.push_back({{64 * i, 64 * (i + 1)}});
  const Answers often = run(problem, calls);
  EXPECT_LE(relative_error(often.output, expected.output), 1.25 * relative_error(once.output, expected.output));
  EXPECT_LE(relative_error(often.query_gradient, expected.query_gradient),
            1.25 * relative_error(once.query_gradient, expected.query_gradient));
  EXPECT_LE(relative_error(often.key_gradient, expected.key_gradient),
            1.25 * relative_error(once.key_gradient, expected.key_gradient));
  EXPECT_LE(relative_error(often.value_gradient, expected.value_gradient),
            1.25 * relative_error(once.value_gradient, expected.value_gradient));
}

// The reference itself: each gradient against central differences of Σ output · output_gradient.
TEST(AttentionReference, HasTheGradientsOfItsOutput) {
  Problem problem = make_problem(random_mask(9, 8), 9, 1, 2, 3, DType::float64);
  const Answers answers = reference(problem);
  const auto objective = [&] {
    const Answers now = reference(problem);
    double sum = 0;
    for (size_t i = 0; i < now.output.size(); ++i) sum += now.output[i] * problem.output_gradient[i];
    return sum;
  };
  const auto check = [&](std::vector<double>& input, const std::vector<double>& gradient) {
    for (size_t i = 0; i < input.size(); ++i) {
      const double before = input[i], step = 1e-5;
      input[i] = before + step;
      const double above = objective();
      input[i] = before - step;
      const double below = objective();
      input[i] = before;
      EXPECT_NEAR((above - below) / (2 * step), gradient[i], 1e-9);
    }
  };
  check(problem.query, answers.query_gradient);
  check(problem.key, answers.key_gradient);
  check(problem.value, answers.value_gradient);
}

}  // namespace
}  // namespace annulus::testing
