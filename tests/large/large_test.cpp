// Buffers of more than 2^31 elements: an offset computed in 32 bits anywhere would touch other memory than meant. Every
// row but the last few holds zeros, and the last must come out as the same rows alone. Needs 21 GiB of memory, a few
// minutes, and a device whose memory is the host's.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "kernels/device.h"
#include "kernels/narrow.h"
#include "runtime/batch.h"
#include "runtime/model/head.h"

namespace annulus {
namespace {

constexpr int64_t two_to_31 = int64_t{1} << 31;
constexpr int64_t tail = 5;  // rows that hold values

class LargeBuffers : public testing::Test {
 protected:
  Tensor zeros(const Shape& shape, DType dtype) {
    Tensor tensor = device_->allocate(shape, dtype, Purpose::workspace);
    device_->fill_zero(tensor, stream_);
    return tensor;
  }

  // Zeros, but for numbers around `mean` in the last `rows` rows.
  Tensor with_tail(const Shape& shape, int64_t rows, float mean) {
    Tensor tensor = zeros(shape, DType::bfloat16);
    const View last = last_rows(tensor, rows);
    std::normal_distribution<float> normal(mean, 1.0F);
    std::vector<bfloat16> values(narrow<size_t>(last.elements()));
    std::ranges::generate(values, [&] { return round_to_bfloat16(normal(random_)); });
    device_->upload(last, values.data(), stream_);
    return tensor;
  }

  static View last_rows(const View& view, int64_t rows) { return view.slice(view.rows() - rows, view.rows()); }

  // As float32.
  std::vector<float> values_of(const View& view) {
    const Tensor wide = device_->allocate(view.shape(), DType::float32, Purpose::workspace);
    device_->copy(wide, view, stream_);
    std::vector<float> values(narrow<size_t>(view.elements()));
    device_->download(values.data(), wide, stream_);
    return values;
  }

  template <class T>
  Tensor upload(const Shape& shape, const std::vector<T>& values) {
    Tensor tensor = device_->allocate(shape, dtype_of<T>(), Purpose::staging);
    device_->upload(tensor, values.data(), stream_);
    return tensor;
  }

  // `tolerance` is relative to the largest of the numbers.
  static void expect_same(const std::vector<float>& large, const std::vector<float>& alone, const char* what,
                          float tolerance = 0) {
    ASSERT_EQ(large.size(), alone.size()) << what;
    float largest = 0;
    for (const float value : alone) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 0) << what << " holds only zeros";
    for (size_t i = 0; i < large.size(); ++i) {
      ASSERT_NEAR(large[i], alone[i], tolerance * largest) << what << ", element " << i;
    }
  }

  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
  Stream stream_ = device_->compute_stream();
  std::mt19937 random_{1};
};

constexpr int64_t heads = 16, head_dim = 128, window = 8;

// What attention computes for the last rows.
struct AttentionResults {
  std::vector<float> output = {}, log_sum = {}, query_gradient = {}, key_gradient = {}, value_gradient = {};
};

class LargeAttention : public LargeBuffers {
 protected:
  // Forward and backward of `query`, whose rows are the last of the rows that keys and values have.
  AttentionResults run(const View& query, const View& output_gradient, const KeySlice& keys) {
    const int64_t rows = query.rows();
    const Tensor ranges = causal_window(rows, keys.key.rows() - rows);
    const Tensor log_sum = device_->allocate({rows, heads}, DType::float32, Purpose::attention);
    const Tensor delta = device_->allocate({rows, heads}, DType::float32, Purpose::attention);
    AttentionResults results = forward(query, output_gradient, keys, {ranges, log_sum, delta});

    const Tensor query_gradient = device_->allocate(query.shape(), DType::float32, Purpose::attention);
    const Tensor key_gradient = device_->allocate(keys.key.shape(), DType::float32, Purpose::attention);
    const Tensor value_gradient = device_->allocate(keys.key.shape(), DType::float32, Purpose::attention);
    const KeyGradientSlice gradients{key_gradient, value_gradient};
    device_->attention_backward({.query = query,
                                 .ranges = ranges,
                                 .keys = std::span(&keys, 1),
                                 .scale = scale,
                                 .log_sum = log_sum,
                                 .delta = delta,
                                 .output_gradient = output_gradient,
                                 .query_gradient = query_gradient,
                                 .key_gradients = std::span(&gradients, 1)},
                                stream_);
    results.query_gradient = values_of(last_rows(query_gradient, tail));
    results.key_gradient = values_of(last_rows(key_gradient, tail));
    results.value_gradient = values_of(last_rows(value_gradient, tail));
    return results;
  }

 private:
  static constexpr float scale = 0.088F;

  struct RowBuffers {
    View ranges, log_sum, delta;
  };

  // The output, 4 GiB of the large run, is gone before backward needs memory.
  AttentionResults forward(const View& query, const View& output_gradient, const KeySlice& keys,
                           const RowBuffers& rows) {
    const Tensor output = device_->allocate(query.shape(), DType::bfloat16, Purpose::attention);
    device_->attention_forward({.query = query,
                                .ranges = rows.ranges,
                                .keys = std::span(&keys, 1),
                                .scale = scale,
                                .output = output,
                                .log_sum = rows.log_sum},
                               stream_);
    device_->attention_delta(rows.delta, output, output_gradient, stream_);
    return {.output = values_of(last_rows(output, tail)), .log_sum = values_of(last_rows(rows.log_sum, tail))};
  }

  Tensor causal_window(int64_t rows, int64_t first_row) {
    std::vector<int32_t> ranges;
    ranges.reserve(narrow<size_t>(4 * rows));
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      const auto end = narrow<int32_t>(row + 1);
      ranges.insert(ranges.end(), {std::max(0, end - static_cast<int32_t>(window)), end, end, end});
    }
    return upload({rows, 4}, ranges);
  }
};

// Five rows are another shape of product than a full tile of them and may sum in another order: the bound is that of
// bfloat16 attention everywhere, a unit in its last place. The rows alone see the same keys; those that more rows see
// than these have other gradients and are not compared: the last `tail` keys are seen by the last `tail` rows only.
TEST_F(LargeAttention, LastRowsAreThoseRowsAlone) {
  const int64_t rows = (int64_t{1} << 20) + 3;
  const Shape shape{rows, heads, head_dim};
  ASSERT_GT(shape.elements(), two_to_31);
  const Tensor query = with_tail(shape, tail, 0.2F), output_gradient = with_tail(shape, tail, 0.5F);
  const Tensor key = with_tail({rows, 1, head_dim}, tail + window, 0.1F);
  const Tensor value = with_tail({rows, 1, head_dim}, tail + window, 1.0F);
  const KeySlice keys{key, value, 0};

  constexpr float bound = 0x1p-7F;
  const AttentionResults large = run(query, output_gradient, keys);
  const AttentionResults alone = run(last_rows(query, tail), last_rows(output_gradient, tail), keys);
  expect_same(large.output, alone.output, "the output", bound);
  expect_same(large.log_sum, alone.log_sum, "the log-sums", bound);
  expect_same(large.query_gradient, alone.query_gradient, "the gradient of the queries", bound);
  expect_same(large.key_gradient, alone.key_gradient, "the gradient of the keys", bound);
  expect_same(large.value_gradient, alone.value_gradient, "the gradient of the values", bound);
}

constexpr int64_t hidden = 1024;
constexpr int64_t many_rows = (int64_t{1} << 21) + 5;

struct HeadResults {
  double loss = 0;
  std::vector<float> input_gradient = {}, norm_gradient = {}, projection_gradient = {};
};

class LargeHead : public LargeBuffers {
 protected:
  static constexpr int64_t vocabulary = 256;

  // Only the last rows count.
  HeadResults run(const View& input, const HeadParameters& weights) {
    ModelConfig model;
    model.vocabulary = vocabulary;
    model.hidden = hidden;
    const int64_t rows = input.rows();
    const MicroBatch batch = last_rows_count(rows);
    const Tensor input_gradient = device_->allocate(input.shape(), DType::bfloat16, Purpose::workspace);
    const Tensor norm_gradient = zeros({hidden}, DType::float32);
    const Tensor projection_gradient = zeros({vocabulary, hidden}, DType::float32);
    const Tensor loss = zeros({1}, DType::float64);
    head_loss(*device_, model, input, input_gradient, weights, {norm_gradient, projection_gradient}, batch, 65536, loss,
              stream_);
    HeadResults results{.input_gradient = values_of(last_rows(input_gradient, tail)),
                        .norm_gradient = values_of(norm_gradient),
                        .projection_gradient = values_of(projection_gradient)};
    device_->download(&results.loss, loss, stream_);
    return results;
  }

 private:
  MicroBatch last_rows_count(int64_t rows) {
    std::vector<int32_t> answers(narrow<size_t>(rows), -1);
    std::vector<float> counts(narrow<size_t>(rows), 0.0F);
    for (int64_t row = rows - tail; row < rows; ++row) {
      answers[narrow<size_t>(row)] = narrow<int32_t>(rows - row);
      counts[narrow<size_t>(row)] = 1.0F;
    }
    MicroBatch batch;
    batch.answers = upload({rows}, answers);
    batch.weights = upload({rows}, counts);
    return batch;
  }
};

// Sums over rows are of the same numbers, and zeros.
TEST_F(LargeHead, LastRowsAreThoseRowsAlone) {
  const Shape shape{many_rows, hidden};
  ASSERT_GT(shape.elements(), two_to_31);
  const Tensor input = with_tail(shape, tail, 0.3F);
  const Tensor norm = with_tail({hidden}, hidden, 1.0F), projection = with_tail({vocabulary, hidden}, vocabulary, 0.1F);
  const HeadResults large = run(input, {norm, projection});
  const HeadResults alone = run(last_rows(input, tail), {norm, projection});
  EXPECT_GT(large.loss, 0);
  EXPECT_EQ(large.loss, alone.loss);
  expect_same(large.input_gradient, alone.input_gradient, "the gradient of the input");
  expect_same(large.norm_gradient, alone.norm_gradient, "the gradient of the norm");
  expect_same(large.projection_gradient, alone.projection_gradient, "the gradient of the projection");
}

// As many rows of output as the table has, all of token 0 but the last few, which are the last few of the vocabulary.
class LargeEmbedding : public LargeBuffers {
 protected:
  Tensor tokens() {
    std::vector<int32_t> ids(narrow<size_t>(many_rows), 0);
    for (int64_t row = many_rows - tail; row < many_rows; ++row) ids[narrow<size_t>(row)] = narrow<int32_t>(row);
    return upload({many_rows}, ids);
  }
};

TEST_F(LargeEmbedding, LastRowsAreTheLastOfTheTable) {
  const Tensor table = with_tail({many_rows, hidden}, tail, 0.3F);
  ASSERT_GT(table->elements(), two_to_31);
  const Tensor output = device_->allocate({many_rows, hidden}, DType::bfloat16, Purpose::workspace);
  device_->embedding_forward(output, table, tokens(), stream_);
  expect_same(values_of(last_rows(output, tail)), values_of(last_rows(table, tail)), "the output");
}

TEST_F(LargeEmbedding, LastRowsGoToTheLastOfTheTableGradient) {
  const Tensor output_gradient = with_tail({many_rows, hidden}, tail, 0.3F);
  const Tensor table_gradient = zeros({many_rows, hidden}, DType::float32);
  device_->embedding_backward(table_gradient, output_gradient, tokens(), stream_);
  expect_same(values_of(last_rows(table_gradient, tail)), values_of(last_rows(output_gradient, tail)), "the gradient");
}

// The figure that says what a machine needs for this file.
class PeakMemory : public testing::Environment {
 public:
  void TearDown() override {
    rusage usage{};
    ASSERT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
    const double gib = static_cast<double>(usage.ru_maxrss) / 1048576.0;  // from KiB
    std::cout << "Peak memory: " << gib << " GiB\n";
    EXPECT_LT(gib, 21.0);
  }
};
[[maybe_unused]] const auto* const peak_memory = testing::AddGlobalTestEnvironment(new PeakMemory);

}  // namespace
}  // namespace annulus
