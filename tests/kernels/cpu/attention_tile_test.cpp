#include "kernels/cpu/attention_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vector.h"

namespace annulus::cpu {
namespace {

constexpr int64_t width = 64, group = 2, head_dim = 5;
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Level {
  bool here;
  const char* name;
  const AttentionTileKernels& kernels;
};

// body for each instruction set this CPU has.
template <class Body>
void for_each_level(const Body& body) {
  const Level levels[] = {{has(Isa::v2), "v2", v2::attention_tile_kernels},
                          {has(Isa::v3), "v3", v3::attention_tile_kernels},
                          {has(Isa::v4), "v4", v4::attention_tile_kernels},
                          {has(Isa::v4) && multiplies_bfloat16(), "v4_bf16", v4_bf16::attention_tile_kernels}};
  for (const Level& level : levels) {
    if (!level.here) continue;
    SCOPED_TRACE(level.name);
    body(level.kernels);
  }
}

// Ranges whose borders meet vectors of every width at every offset.
std::vector<ColumnRanges> every_kind_of_ranges() {
  std::vector<ColumnRanges> ranges = {{0, 64, 64, 64},  {0, 0, 0, 0},  {0, 0, 3, 64},
                                      {63, 64, 64, 64}, {0, 5, 5, 64}, {0, 1, 63, 64}};
  for (int32_t i = 0; i <= 33; ++i) ranges.push_back({i, i + 7, i + 9, i + 10});
  return ranges;
}

bool sees(const ColumnRanges& r, int64_t column) {
  return (column >= r.begin0 && column < r.end0) || (column >= r.begin1 && column < r.end1);
}

std::vector<float> random_numbers(int64_t count, float size) {
  std::mt19937 generator(3);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& x : numbers) x = size * (static_cast<float>(generator() >> 8) / 8388608.0F - 1.0F);
  return numbers;
}

// Element `column` of a row of results, where bfloat16 is packed into the first half.
double element(const std::vector<float>& tile, int64_t row, int64_t column, bool round) {
  const float* begin = tile.data() + row * width;
  if (!round) return static_cast<double>(begin[column]);
  bfloat16 value;
  std::memcpy(&value, reinterpret_cast<const char*>(begin) + 2 * column, 2);
  return static_cast<double>(widen(value));
}

TEST(AttentionTile, RunsTheSoftmaxOnWhatARowSees) {
  for_each_level([](const AttentionTileKernels& kernels) {
    for (const bool round : {false, true}) {
      const std::vector<ColumnRanges> ranges = every_kind_of_ranges();
      const auto rows = static_cast<int64_t>(ranges.size()) * group;
      const std::vector<float> scores = random_numbers(rows * width, 30);
      std::vector<float> p = scores;
      for (int64_t i = 0; i < rows * width; ++i) {
        if (!sees(ranges[static_cast<size_t>(i / width / group)], i % width)) p[static_cast<size_t>(i)] = std::nanf("");
      }
      std::vector<float> output(static_cast<size_t>(rows * head_dim), 3.0F), row_max(static_cast<size_t>(rows), 2.0F),
          row_sum(static_cast<size_t>(rows), 1.5F);
      kernels.softmax({.scores = p.data(),
                       .output = output.data(),
                       .row_max = row_max.data(),
                       .row_sum = row_sum.data(),
                       .ranges = ranges.data(),
                       .first_row = 0,
                       .first_column = 0,
                       .rows = rows,
                       .width = width,
                       .group = group,
                       .head_dim = head_dim,
                       .scale = 0.5F,
                       .round = round});
      for (int64_t row = 0; row < rows; ++row) {
        SCOPED_TRACE("row " + std::to_string(row));
        const ColumnRanges& r = ranges[static_cast<size_t>(row / group)];
        const auto score = [&](int64_t column) {
          return 0.5 * static_cast<double>(scores[static_cast<size_t>(row * width + column)]);
        };
        double largest = 2;
        for (int64_t column = 0; column < width; ++column) {
          if (sees(r, column)) largest = std::max(largest, score(column));
        }
        double sum = 1.5 * std::exp(2 - largest);
        for (int64_t column = 0; column < width; ++column) {
          const double expected = sees(r, column) ? std::exp(score(column) - largest) : 0;
          // That of the exponential and of the rounded difference it is taken of.
          const double relative = round ? 0x1p-8 : 2e-7 + 0x1p-24 * std::abs(score(column) - largest);
          EXPECT_NEAR(element(p, row, column, round), expected, relative * expected) << column;
          sum += expected;
        }
        const auto i = static_cast<size_t>(row);
        EXPECT_FLOAT_EQ(row_max[i], static_cast<float>(largest));
        EXPECT_NEAR(row_sum[i], sum, 1e-6 * sum);
        EXPECT_NEAR(output[i * head_dim + 4], 3 * std::exp(2 - largest), 3e-7 * 3);
      }
    }
  });
}

TEST(AttentionTile, GivesTheGradientOfWhatARowSees) {
  for_each_level([](const AttentionTileKernels& kernels) {
    for (const bool round : {false, true}) {
      const std::vector<ColumnRanges> ranges = every_kind_of_ranges();
      const auto rows = static_cast<int64_t>(ranges.size()) * group;
      const std::vector<float> scores = random_numbers(rows * width, 8), products = random_numbers(rows * width, 2);
      std::vector<float> p = scores, ds = products, log_sum(static_cast<size_t>(rows)),
                         delta(static_cast<size_t>(rows));
      for (int64_t row = 0; row < rows; ++row) {
        const ColumnRanges& r = ranges[static_cast<size_t>(row / group)];
        const bool dead = r.begin0 == r.end0 && r.begin1 == r.end1;
        log_sum[static_cast<size_t>(row)] = dead ? std::nanf("") : 5.0F + static_cast<float>(row % 3);
        delta[static_cast<size_t>(row)] = dead ? std::nanf("") : 0.25F * static_cast<float>(row % 5);
        for (int64_t column = 0; column < width; ++column) {
          if (sees(r, column)) continue;
          p[static_cast<size_t>(row * width + column)] = infinity;
          ds[static_cast<size_t>(row * width + column)] = std::nanf("");
        }
      }
      kernels.gradient({.scores = p.data(),
                        .gradients = ds.data(),
                        .log_sum = log_sum.data(),
                        .delta = delta.data(),
                        .ranges = ranges.data(),
                        .first_row = 0,
                        .first_column = 0,
                        .rows = rows,
                        .width = width,
                        .group = group,
                        .scale = 0.5F,
                        .round = round});
      for (int64_t i = 0; i < rows * width; ++i) {
        const int64_t row = i / width, column = i % width;
        const bool seen = sees(ranges[static_cast<size_t>(row / group)], column);
        const auto at = [](const std::vector<float>& values, int64_t index) {
          return static_cast<double>(values[static_cast<size_t>(index)]);
        };
        const double expected_p = seen ? std::exp(0.5 * at(scores, i) - at(log_sum, row)) : 0;
        const double expected_ds = seen ? 0.5 * expected_p * (at(products, i) - at(delta, row)) : 0;
        const double relative = round ? 0x1p-8 : 1e-6;
        EXPECT_NEAR(element(p, row, column, round), expected_p, relative * expected_p);
        // The difference do·v − delta is off by a rounding of its terms.
        EXPECT_NEAR(element(ds, row, column, round), expected_ds, relative * std::abs(expected_ds) + 2e-7 * expected_p);
      }
    }
  });
}

// Through the softmax of one row whose maximum is 0: p = exp(score).
TEST(AttentionTile, KnowsTheExponentialToARoundingOverItsWholeRange) {
  for_each_level([](const AttentionTileKernels& kernels) {
    std::vector<float> p(16), output(1);
    const ColumnRanges all = {0, 16, 16, 16};
    double worst = 0;
    for (float x = 0; x > -87.0F; x -= 0.01F) {
      float row_max = 0, row_sum = 0;
      for (int i = 0; i < 16; ++i) p[static_cast<size_t>(i)] = i == 0 ? 0.0F : x - 0.0006F * static_cast<float>(i);
      const std::vector<float> scores = p;
      kernels.softmax({.scores = p.data(),
                       .output = output.data(),
                       .row_max = &row_max,
                       .row_sum = &row_sum,
                       .ranges = &all,
                       .first_row = 0,
                       .first_column = 0,
                       .rows = 1,
                       .width = 16,
                       .group = 1,
                       .head_dim = 1,
                       .scale = 1,
                       .round = false});
      for (size_t i = 0; i < 16; ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(p[i]) / std::exp(static_cast<double>(scores[i])) - 1));
      }
      ASSERT_EQ(p[0], 1.0F);
    }
    EXPECT_LT(worst, 1.2e-7);
    EXPECT_GT(worst, 0);
  });
}

TEST(AttentionTile, HasNothingLeftOfScoresFarBelowTheMaximum) {
  for_each_level([](const AttentionTileKernels& kernels) {
    std::vector<float> p(16, -infinity), output(1);
    p[0] = 0, p[1] = -200, p[2] = -3e38F;
    const ColumnRanges all = {0, 16, 16, 16};
    float row_max = -infinity, row_sum = 0;
    kernels.softmax({.scores = p.data(),
                     .output = output.data(),
                     .row_max = &row_max,
                     .row_sum = &row_sum,
                     .ranges = &all,
                     .first_row = 0,
                     .first_column = 0,
                     .rows = 1,
                     .width = 16,
                     .group = 1,
                     .head_dim = 1,
                     .scale = 1,
                     .round = false});
    EXPECT_EQ(p[0], 1.0F);
    EXPECT_EQ(std::vector<float>(p.begin() + 1, p.end()), std::vector<float>(15, 0.0F));
    EXPECT_EQ(row_sum, 1.0F);
    EXPECT_EQ(row_max, 0.0F);
  });
}

}  // namespace
}  // namespace annulus::cpu
