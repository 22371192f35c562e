#include "tests/support/attention_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace annulus::testing {
namespace {

using Numbers = std::vector<double>;

double rounded(double x, DType dtype) {
  if (dtype == DType::float64) return x;
  const auto single = static_cast<float>(x);
  return dtype == DType::bfloat16 ? static_cast<double>(widen(round_to_bfloat16(single))) : static_cast<double>(single);
}

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

Tensor upload(Device& device, const Numbers& values, const Shape& shape, DType dtype) {
  std::vector<float> singles(values.begin(), values.end());
  Tensor tensor = device.allocate(shape, dtype, Purpose::attention);
  const Tensor wide = device.allocate(shape, DType::float32, Purpose::attention);
  device.upload(wide, singles.data(), device.compute_stream());
  device.copy(tensor, wide, device.compute_stream());
  return tensor;
}

Numbers download(Device& device, const View& view) {
  const Tensor wide = device.allocate(view.shape(), DType::float32, Purpose::attention);
  device.copy(wide, view, device.compute_stream());
  std::vector<float> singles(index(view.elements()));
  device.download(singles.data(), wide, device.compute_stream());
  return {singles.begin(), singles.end()};
}

// One query head of one row, by definition.
void attend(const Problem& p, int64_t row, int64_t head, Answers& answers) {
  const int64_t d = p.head_dim, kv_head = head / p.group;
  const auto at_key = [&](const Numbers& x, int64_t key, int64_t i) {
    return x[index((key * p.kv_heads + kv_head) * d + i)];
  };
  const int64_t base = (row * p.heads() + head) * d;
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < p.keys; ++key) {
    if (p.sees(row, key)) keys.push_back(key);
  }
  Numbers scores;
  for (const int64_t key : keys) {
    double score = 0;
    for (int64_t i = 0; i < d; ++i) score += p.query[index(base + i)] * at_key(p.key, key, i);
    scores.push_back(p.scale * score);
  }
  double& log_sum = answers.log_sum[index(row * p.heads() + head)];
  log_sum = -std::numeric_limits<double>::infinity();
  if (keys.empty()) return;
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  log_sum = largest + std::log(sum);

  double delta = 0;
  for (int64_t i = 0; i < d; ++i) {
    double& output = answers.output[index(base + i)];
    for (size_t n = 0; n < keys.size(); ++n) output += std::exp(scores[n] - log_sum) * at_key(p.value, keys[n], i);
    delta += rounded(output, p.dtype) * p.output_gradient[index(base + i)];
  }
  for (size_t n = 0; n < keys.size(); ++n) {
    const double probability = std::exp(scores[n] - log_sum);
    double product = 0;
    for (int64_t i = 0; i < d; ++i) product += p.output_gradient[index(base + i)] * at_key(p.value, keys[n], i);
    const double score_gradient = p.scale * probability * (product - delta);
    for (int64_t i = 0; i < d; ++i) {
      const size_t at = index((keys[n] * p.kv_heads + kv_head) * d + i);
      answers.query_gradient[index(base + i)] += score_gradient * p.key[at];
      answers.key_gradient[at] += score_gradient * p.query[index(base + i)];
      answers.value_gradient[at] += probability * p.output_gradient[index(base + i)];
    }
  }
}

}  // namespace

bool Problem::sees(int64_t row, int64_t key_index) const {
  const KeyRanges& r = ranges[index(row)];
  const int64_t key_row = first + key_index;
  return (key_row >= r.begin0 && key_row < r.end0) || (key_row >= r.begin1 && key_row < r.end1);
}

bool Problem::dead(int64_t row) const {
  for (int64_t key_index = 0; key_index < keys; ++key_index) {
    if (sees(row, key_index)) return false;
  }
  return true;
}

bool Problem::unseen(int64_t key_index) const {
  for (int64_t row = 0; row < rows; ++row) {
    if (sees(row, key_index)) return false;
  }
  return true;
}

Numbers numbers(int64_t count, double offset, uint32_t seed, DType dtype) {
  std::mt19937 generator(seed);
  Numbers values(index(count));
  for (double& value : values)
    value = rounded(offset + 2.0 * static_cast<double>(generator()) / 4294967296.0 - 1.0, dtype);
  return values;
}

Problem make_problem(const Ranges& ranges, int64_t keys, int64_t kv_heads, int64_t group, int64_t head_dim, DType dtype,
                     uint32_t seed) {
  const auto rows = static_cast<int64_t>(ranges.size());
  const int64_t query_elements = rows * kv_heads * group * head_dim, key_elements = keys * kv_heads * head_dim;
  return {.rows = rows,
          .keys = keys,
          .kv_heads = kv_heads,
          .group = group,
          .head_dim = head_dim,
          .scale = static_cast<double>(static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))),
          .dtype = dtype,
          .ranges = ranges,
          .query = numbers(query_elements, 0.3, 4 * seed, dtype),
          .key = numbers(key_elements, -0.2, 4 * seed + 1, dtype),
          .value = numbers(key_elements, 0.5, 4 * seed + 2, dtype),
          .output_gradient = numbers(query_elements, 0.25, 4 * seed + 3, dtype)};
}

void set_score_size(Problem& p, double size) {
  double largest = 0;
  for (int64_t row = 0; row < p.rows * p.heads(); ++row) {
    const int64_t kv_head = row % p.heads() / p.group;
    for (int64_t key = 0; key < p.keys; ++key) {
      double score = 0;
      for (int64_t i = 0; i < p.head_dim; ++i) {
        score += p.query[index(row * p.head_dim + i)] * p.key[index((key * p.kv_heads + kv_head) * p.head_dim + i)];
      }
      largest = std::max(largest, std::abs(score));
    }
  }
  p.scale = static_cast<double>(static_cast<float>(size / largest));
}

Answers reference(const Problem& p) {
  Answers answers{.output = Numbers(p.query.size()),
                  .log_sum = Numbers(index(p.rows * p.heads())),
                  .query_gradient = Numbers(p.query.size()),
                  .key_gradient = Numbers(p.key.size()),
                  .value_gradient = Numbers(p.key.size())};
  for (int64_t row = 0; row < p.rows; ++row) {
    for (int64_t head = 0; head < p.heads(); ++head) attend(p, row, head, answers);
  }
  return answers;
}

Calls random_calls(int64_t keys, int64_t calls, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int64_t> cuts = {0, keys};
  for (int64_t i = 0; i < 2 * calls; ++i) cuts.push_back(generator() % (keys + 1));
  std::sort(cuts.begin(), cuts.end());
  Calls result(index(calls));
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    auto& pieces = result[generator() % result.size()];
    pieces.insert(pieces.begin() + static_cast<int64_t>(generator() % (pieces.size() + 1)),
                  Piece{cuts[i], cuts[i + 1]});
  }
  return result;
}

namespace {

// What one run of a problem holds on the device.
struct Tensors {
  Tensors(Device& device, const Problem& p, bool resumed)
      : query(upload(device, p.query, query_shape(p), p.dtype)),
        key(upload(device, p.key, key_shape(p), p.dtype)),
        value(upload(device, p.value, key_shape(p), p.dtype)),
        output_gradient(upload(device, p.output_gradient, query_shape(p), p.dtype)),
        ranges(device.allocate({p.rows, 4}, DType::int32, Purpose::attention)),
        output(device.allocate(query_shape(p), p.dtype, Purpose::attention)),
        log_sum(make_scalars(device, p)),
        delta(make_scalars(device, p)),
        query_gradient(device.allocate(query_shape(p), DType::float32, Purpose::attention)),
        key_gradient(device.allocate(key_shape(p), DType::float32, Purpose::attention)),
        value_gradient(device.allocate(key_shape(p), DType::float32, Purpose::attention)) {
    device.upload(ranges, p.ranges.data(), device.compute_stream());
    if (!resumed) return;
    state_output = device.allocate(query_shape(p), DType::float32, Purpose::attention);
    row_max = make_scalars(device, p);
    row_sum = make_scalars(device, p);
  }

  static Shape query_shape(const Problem& p) { return {p.rows, p.heads(), p.head_dim}; }
  static Shape key_shape(const Problem& p) { return {p.keys, p.kv_heads, p.head_dim}; }
  static Tensor make_scalars(Device& device, const Problem& p) {
    return device.allocate({p.rows, p.heads()}, DType::float32, Purpose::attention);
  }

  [[nodiscard]] std::vector<KeySlice> slices(const std::vector<Piece>& pieces, int64_t first) const {
    std::vector<KeySlice> result;
    for (const Piece& piece : pieces) {
      result.push_back({key->slice(piece.begin, piece.end), value->slice(piece.begin, piece.end), first + piece.begin});
    }
    return result;
  }
  [[nodiscard]] std::vector<KeyGradientSlice> gradients(const std::vector<Piece>& pieces) const {
    std::vector<KeyGradientSlice> result;
    for (const Piece& piece : pieces) {
      result.push_back({key_gradient->slice(piece.begin, piece.end), value_gradient->slice(piece.begin, piece.end)});
    }
    return result;
  }

  Tensor query, key, value, output_gradient, ranges, output, log_sum, delta, query_gradient, key_gradient,
      value_gradient, state_output, row_max, row_sum;
};

void run_forward(Device& device, const Problem& p, const Tensors& t, const Calls& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::vector<KeySlice> keys = t.slices(calls[i], p.first);
    device.attention_forward({.query = t.query,
                              .ranges = t.ranges,
                              .keys = keys,
                              .scale = static_cast<float>(p.scale),
                              .first = i == 0,
                              .last = i + 1 == calls.size(),
                              .state = {.output = t.state_output, .row_max = t.row_max, .row_sum = t.row_sum},
                              .output = t.output,
                              .log_sum = t.log_sum},
                             device.compute_stream());
  }
}

void run_backward(Device& device, const Problem& p, const Tensors& t, const Calls& calls) {
  device.attention_delta(t.delta, t.output, t.output_gradient, device.compute_stream());
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::vector<KeySlice> keys = t.slices(calls[i], p.first);
    const std::vector<KeyGradientSlice> gradients = t.gradients(calls[i]);
    device.attention_backward({.query = t.query,
                               .ranges = t.ranges,
                               .keys = keys,
                               .scale = static_cast<float>(p.scale),
                               .log_sum = t.log_sum,
                               .delta = t.delta,
                               .output_gradient = t.output_gradient,
                               .first = i == 0,
                               .query_gradient = t.query_gradient,
                               .key_gradients = gradients},
                              device.compute_stream());
  }
}

}  // namespace

Answers run(Device& device, const Problem& p, const Calls& calls) {
  const Calls used = calls.empty() ? Calls{{{0, p.keys}}} : calls;
  const Tensors tensors(device, p, used.size() > 1);
  run_forward(device, p, tensors, used);
  run_backward(device, p, tensors, used);
  return {download(device, tensors.output), download(device, tensors.log_sum), download(device, tensors.query_gradient),
          download(device, tensors.key_gradient), download(device, tensors.value_gradient)};
}

double norm(const Numbers& a) {
  double sum = 0;
  for (const double x : a) sum += x * x;
  return std::sqrt(sum);
}

double relative_error(const Numbers& a, const Numbers& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::isinf(b[i]) && a[i] == b[i]) continue;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

void expect_close(const Problem& p, const Answers& actual, const Answers& expected, double tolerance) {
  EXPECT_LE(relative_error(actual.output, expected.output), tolerance) << "output";
  EXPECT_LE(relative_error(actual.log_sum, expected.log_sum), tolerance) << "log_sum";
  const double whole =
      std::hypot(norm(expected.query_gradient), norm(expected.key_gradient), norm(expected.value_gradient));
  const double rounding = 1e-6 * whole * p.scale * std::sqrt(static_cast<double>(p.head_dim));
  const auto expect_gradient = [&](const char* name, const Numbers& a, const Numbers& b) {
    if (norm(b) <= 1e-7 * whole) {
      EXPECT_LE(norm(a), rounding) << name << ", which is zero";
    } else {
      EXPECT_LE(relative_error(a, b), tolerance) << name;
    }
  };
  expect_gradient("query gradient", actual.query_gradient, expected.query_gradient);
  expect_gradient("key gradient", actual.key_gradient, expected.key_gradient);
  expect_gradient("value gradient", actual.value_gradient, expected.value_gradient);
  const auto expect_zeros = [](const Numbers& x, int64_t row, int64_t width) {
    for (int64_t i = 0; i < width; ++i) EXPECT_EQ(x[index(row * width + i)], 0);
  };
  for (int64_t row = 0; row < p.rows; ++row) {
    if (!p.dead(row)) continue;
    expect_zeros(actual.output, row, p.heads() * p.head_dim);
    expect_zeros(actual.query_gradient, row, p.heads() * p.head_dim);
  }
  for (int64_t key = 0; key < p.keys; ++key) {
    if (!p.unseen(key)) continue;
    expect_zeros(actual.key_gradient, key, p.kv_heads * p.head_dim);
    expect_zeros(actual.value_gradient, key, p.kv_heads * p.head_dim);
  }
}

}  // namespace annulus::testing
