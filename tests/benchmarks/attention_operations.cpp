#include <memory>

#include "tests/benchmarks/operations.h"

namespace annulus {
namespace {

constexpr int64_t heads = 16, kv_heads = 8, head_dim = 128, window = 1024;
constexpr float scale = 0.08838835F;  // 1/√head_dim

// Self-attention of one sequence.
struct Attention {
  Attention(Workbench& bench, DType dtype, const Mask& mask, int64_t tokens)
      : device(bench.device()),
        query(bench.numbers({tokens, heads, head_dim}, dtype)),
        output(bench.room({tokens, heads, head_dim}, dtype)),
        log_sum(bench.room({tokens, heads}, DType::float32)),
        slice{.key = bench.numbers({tokens, kv_heads, head_dim}, dtype),
              .value = bench.numbers({tokens, kv_heads, head_dim}, dtype)} {
    std::vector<int32_t> words;
    for (int64_t row = 0; row < tokens; ++row) {
      const KeyRanges keys = mask.keys(row, tokens);
      words.insert(words.end(), {keys.begin0, keys.end0, keys.begin1, keys.end1});
      visible_pairs += keys.end0 - keys.begin0;
    }
    ranges = bench.upload({tokens, 4}, words);
  }

  void forward() const {
    device.attention_forward(
        {.query = query, .ranges = ranges, .keys = {&slice, 1}, .scale = scale, .output = output, .log_sum = log_sum},
        {});
  }

  Device& device;
  View query, output, log_sum, ranges;
  KeySlice slice;
  double visible_pairs = 0;
};

struct Backward {
  Backward(Workbench& bench, DType dtype, const Mask& mask, int64_t tokens)
      : attention(bench, dtype, mask, tokens),
        output_gradient(bench.numbers({tokens, heads, head_dim}, dtype)),
        delta(bench.room({tokens, heads}, DType::float32)),
        query_gradient(bench.room({tokens, heads, head_dim}, DType::float32)),
        key_gradients{.key = bench.room({tokens, kv_heads, head_dim}, DType::float32),
                      .value = bench.room({tokens, kv_heads, head_dim}, DType::float32)} {
    attention.forward();
  }

  void run() const {
    attention.device.attention_delta(delta, attention.output, output_gradient, {});
    attention.device.attention_backward({.query = attention.query,
                                         .ranges = attention.ranges,
                                         .keys = {&attention.slice, 1},
                                         .scale = scale,
                                         .log_sum = attention.log_sum,
                                         .delta = delta,
                                         .output_gradient = output_gradient,
                                         .query_gradient = query_gradient,
                                         .key_gradients = {&key_gradients, 1}},
                                        {});
  }

  Attention attention;
  View output_gradient, delta, query_gradient;
  KeyGradientSlice key_gradients;
};

}  // namespace

KeyRanges Mask::keys(int64_t row, int64_t rows) const {
  const auto end = static_cast<int32_t>(name == "full" ? rows : row + 1);
  const auto begin = static_cast<int32_t>(name == "window" && row + 1 > window ? row + 1 - window : 0);
  return {.begin0 = begin, .end0 = end, .begin1 = end, .end1 = end};
}

void add_products(Table& table, DType dtype, const std::vector<int64_t>& sizes) {
  table.add_roof("product", Work::flops, dtype, sizes, [dtype](Workbench& bench, int64_t n) {
    const Matmul product{
        .c = bench.room({n, n}, dtype), .a = bench.numbers({n, n}, dtype), .b = bench.numbers({n, n}, dtype)};
    const auto size = static_cast<double>(n);
    return Operation{2 * size * size * size, [&device = bench.device(), product] { device.matmul(product, {}); }};
  });
}

void add_attention(Table& table, DType dtype, const Mask& mask, const std::vector<int64_t>& tokens) {
  constexpr double pair = 2 * heads * head_dim;  // multiplications and additions of one product
  table.add("attention forward, " + mask.name, Work::flops, dtype, tokens, [=](Workbench& bench, int64_t length) {
    const auto attention = std::make_shared<const Attention>(bench, dtype, mask, length);
    return Operation{2 * pair * attention->visible_pairs, [attention] { attention->forward(); }};
  });
  table.add("attention backward, " + mask.name, Work::flops, dtype, tokens, [=](Workbench& bench, int64_t length) {
    const auto backward = std::make_shared<const Backward>(bench, dtype, mask, length);
    return Operation{5 * pair * backward->attention.visible_pairs, [backward] { backward->run(); }};
  });
}

}  // namespace annulus
