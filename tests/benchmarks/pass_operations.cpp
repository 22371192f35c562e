#include <initializer_list>
#include <numeric>

#include "tests/benchmarks/operations.h"

namespace annulus {
namespace {

constexpr int64_t hidden = 1024, intermediate = 3072, heads = 16, head_dim = 128, vocabulary = 151936;
constexpr double theta = 1e6;

double bytes_of(std::initializer_list<View> views) {
  return std::accumulate(views.begin(), views.end(), 0.0,
                         [](double sum, const View& view) { return sum + static_cast<double>(view.bytes()); });
}

// Each row's number, kept below `end`.
View row_numbers(Workbench& bench, int64_t rows, int64_t end) {
  std::vector<int32_t> numbers;
  for (int64_t row = 0; row < rows; ++row) numbers.push_back(static_cast<int32_t>(row % end));
  return bench.upload({rows}, numbers);
}

struct Pass {
  const char* name;
  Operation (*make)(Workbench& bench, DType dtype, int64_t rows);
};

Operation copy(Workbench& bench, DType dtype, int64_t rows) {
  const View source = bench.numbers({rows, intermediate}, dtype), destination = bench.room(source.shape(), dtype);
  return {bytes_of({source, destination}), [=, &device = bench.device()] { device.copy(destination, source, {}); }};
}

Operation accumulate(Workbench& bench, DType dtype, int64_t rows) {
  const View source = bench.numbers({rows, intermediate}, dtype);
  const View destination = bench.room(source.shape(), DType::float32);
  return {bytes_of({source, destination, destination}),
          [=, &device = bench.device()] { device.accumulate(destination, source, {}); }};
}

Operation sum_of_squares(Workbench& bench, DType /*dtype*/, int64_t rows) {
  const View source = bench.numbers({rows, intermediate}, DType::float32), sum = bench.room({1}, DType::float64);
  return {bytes_of({source}), [=, &device = bench.device()] { device.sum_of_squares(sum, source, {}); }};
}

Operation embedding_forward(Workbench& bench, DType dtype, int64_t rows) {
  const View table = bench.numbers({rows, hidden}, dtype), output = bench.room(table.shape(), dtype);
  const View tokens = row_numbers(bench, rows, rows);
  return {bytes_of({table, output, tokens}),
          [=, &device = bench.device()] { device.embedding_forward(output, table, tokens, {}); }};
}

Operation embedding_backward(Workbench& bench, DType dtype, int64_t rows) {
  const View gradient = bench.numbers({rows, hidden}, dtype);
  const View table = bench.room(gradient.shape(), DType::float32), tokens = row_numbers(bench, rows, rows);
  return {bytes_of({gradient, table, table, tokens}),
          [=, &device = bench.device()] { device.embedding_backward(table, gradient, tokens, {}); }};
}

Operation rms_norm_forward(Workbench& bench, DType dtype, int64_t rows) {
  const View input = bench.numbers({rows, hidden}, dtype);
  const RmsNormForward norm{.output = bench.room({rows, hidden}, dtype),
                            .rstd = bench.room({rows}, DType::float32),
                            .input = input,
                            .weight = bench.numbers({hidden}, dtype)};
  return {bytes_of({norm.output, norm.rstd, norm.input}),
          [=, &device = bench.device()] { device.rms_norm_forward(norm, {}); }};
}

Operation rms_norm_backward(Workbench& bench, DType dtype, int64_t rows) {
  const RmsNormBackward norm{.input_gradient = bench.room({rows, hidden}, dtype),
                             .weight_gradient = bench.room({hidden}, DType::float32),
                             .output_gradient = bench.numbers({rows, hidden}, dtype),
                             .input = bench.numbers({rows, hidden}, dtype),
                             .rstd = bench.numbers({rows}, DType::float32),
                             .weight = bench.numbers({hidden}, dtype)};
  return {bytes_of({norm.input_gradient, norm.input_gradient, norm.output_gradient, norm.input, norm.rstd}),
          [=, &device = bench.device()] { device.rms_norm_backward(norm, {}); }};
}

Operation rotary_angles(Workbench& bench, DType /*dtype*/, int64_t rows) {
  const View cosine = bench.room({rows, head_dim / 2}, DType::float32);
  const View sine = bench.room({rows, head_dim / 2}, DType::float32), positions = row_numbers(bench, rows, rows);
  return {bytes_of({cosine, sine, positions}),
          [=, &device = bench.device()] { device.rotary_angles(cosine, sine, positions, theta, {}); }};
}

Operation head_norm_rotary_forward(Workbench& bench, DType dtype, int64_t rows) {
  const HeadNormRotaryForward norm{.output = bench.room({rows, heads, head_dim}, dtype),
                                   .rstd = bench.room({rows, heads}, DType::float32),
                                   .input = bench.numbers({rows, heads, head_dim}, dtype),
                                   .weight = bench.numbers({head_dim}, dtype),
                                   .cosine = bench.numbers({rows, head_dim / 2}, DType::float32),
                                   .sine = bench.numbers({rows, head_dim / 2}, DType::float32)};
  return {bytes_of({norm.output, norm.rstd, norm.input, norm.cosine, norm.sine}),
          [=, &device = bench.device()] { device.head_norm_rotary_forward(norm, {}); }};
}

Operation head_norm_rotary_backward(Workbench& bench, DType dtype, int64_t rows) {
  const HeadNormRotaryBackward norm{.input_gradient = bench.room({rows, heads, head_dim}, dtype),
                                    .weight_gradient = bench.room({head_dim}, DType::float32),
                                    .output_gradient = bench.numbers({rows, heads, head_dim}, DType::float32),
                                    .input = bench.numbers({rows, heads, head_dim}, dtype),
                                    .rstd = bench.numbers({rows, heads}, DType::float32),
                                    .weight = bench.numbers({head_dim}, dtype),
                                    .cosine = bench.numbers({rows, head_dim / 2}, DType::float32),
                                    .sine = bench.numbers({rows, head_dim / 2}, DType::float32)};
  return {bytes_of({norm.input_gradient, norm.output_gradient, norm.input, norm.rstd, norm.cosine, norm.sine}),
          [=, &device = bench.device()] { device.head_norm_rotary_backward(norm, {}); }};
}

Operation attention_delta(Workbench& bench, DType dtype, int64_t rows) {
  const View output = bench.numbers({rows, heads, head_dim}, dtype), gradient = bench.numbers(output.shape(), dtype);
  const View delta = bench.room({rows, heads}, DType::float32);
  return {bytes_of({output, gradient, delta}),
          [=, &device = bench.device()] { device.attention_delta(delta, output, gradient, {}); }};
}

Operation swiglu_forward(Workbench& bench, DType dtype, int64_t rows) {
  const View gate_up = bench.numbers({rows, 2 * intermediate}, dtype), output = bench.room({rows, intermediate}, dtype);
  return {bytes_of({gate_up, output}), [=, &device = bench.device()] { device.swiglu_forward(output, gate_up, {}); }};
}

// Not in place, as a layer has it: the values would not stay normal numbers.
Operation swiglu_backward(Workbench& bench, DType dtype, int64_t rows) {
  const View gate_up = bench.numbers({rows, 2 * intermediate}, dtype), into = bench.room(gate_up.shape(), dtype);
  const View gradient = bench.numbers({rows, intermediate}, dtype);
  return {bytes_of({into, gate_up, gradient}),
          [=, &device = bench.device()] { device.swiglu_backward(into, gradient, gate_up, {}); }};
}

// An eighth of the rows, since each is as wide as the vocabulary.
Operation cross_entropy(Workbench& bench, DType dtype, int64_t rows) {
  const int64_t fewer = (rows + 7) / 8;
  const CrossEntropy loss{.logits = bench.numbers({fewer, vocabulary}, dtype),
                          .losses = bench.room({fewer}, DType::float32),
                          .labels = row_numbers(bench, fewer, vocabulary),
                          .weights = bench.numbers({fewer}, DType::float32)};
  return {bytes_of({loss.logits, loss.logits, loss.losses, loss.labels, loss.weights}),
          [=, &device = bench.device()] { device.cross_entropy(loss, {}); }};
}

Operation adamw(Workbench& bench, DType dtype, int64_t rows) {
  const Shape shape{rows * hidden};
  const AdamW update{.master = bench.numbers(shape, DType::float32),
                     .moment1 = bench.room(shape, DType::float32),
                     .moment2 = bench.room(shape, DType::float32),
                     .gradient = bench.numbers(shape, DType::float32),
                     .weight = bench.room(shape, dtype),
                     .scale = bench.upload<float>({1}, {1}),
                     .learning_rate = 1e-4,
                     .weight_decay = 0.1};
  return {bytes_of({update.master, update.master, update.moment1, update.moment1, update.moment2, update.moment2,
                    update.gradient, update.weight}),
          [=, &device = bench.device()] { device.adamw(update, {}); }};
}

constexpr Pass passes[] = {{"accumulate", accumulate},
                           {"sum of squares", sum_of_squares},
                           {"embedding forward", embedding_forward},
                           {"embedding backward", embedding_backward},
                           {"norm forward", rms_norm_forward},
                           {"norm backward", rms_norm_backward},
                           {"rotary angles", rotary_angles},
                           {"head norm and rotation forward", head_norm_rotary_forward},
                           {"head norm and rotation backward", head_norm_rotary_backward},
                           {"attention delta", attention_delta},
                           {"SwiGLU forward", swiglu_forward},
                           {"SwiGLU backward", swiglu_backward},
                           {"cross-entropy and gradient", cross_entropy},
                           {"AdamW", adamw}};

}  // namespace

void add_passes(Table& table, DType dtype, const std::vector<int64_t>& rows) {
  const auto bind = [dtype](Operation (*make)(Workbench&, DType, int64_t)) {
    return [make, dtype](Workbench& bench, int64_t size) { return make(bench, dtype, size); };
  };
  table.add_roof("copy", Work::bytes, dtype, rows, bind(copy));
  for (const Pass& pass : passes) table.add(pass.name, Work::bytes, dtype, rows, bind(pass.make));
}

}  // namespace annulus
