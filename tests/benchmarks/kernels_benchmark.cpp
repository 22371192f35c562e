// How fast the operations of a device are, against a roof measured in the same process: the best rate of a cubic
// bfloat16 product. Prints a Markdown table. Attention is causal, in the head shape of Qwen3-0.6B, and counts visible
// pairs: 4·head_dim multiplications and additions a pair and head forward, 10·head_dim backward.
//
//   kernels_benchmark --device cuda
//   kernels_benchmark --device cpu --threads 8 --tokens 1024 2048 --products 512 1024
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/device.h"

namespace annulus {
namespace {

constexpr int64_t heads = 16, kv_heads = 8, head_dim = 128;
constexpr int repetitions = 5;   // in an order by chance among all operations; their median counts
constexpr double seconds = 0.1;  // of one repetition, at least
const std::string product_name = "product", flops_counter = "flops", calls_counter = "calls";

Tensor normal_numbers(Device& device, const Shape& shape) {
  const Tensor numbers = device.allocate(shape, DType::float32, Purpose::staging);
  device.fill_normal({.destination = numbers->flat(), .seed = static_cast<uint64_t>(shape.elements())}, {});
  Tensor rounded = device.allocate(shape, DType::bfloat16, Purpose::staging);
  device.copy(rounded, numbers, {});
  return rounded;
}

// Operations are queued behind one another and waited for once, as in a training step; what waits is a download. The
// first call is not measured: it chooses algorithms and loads kernels.
void measure(benchmark::State& state, Device& device, double flops, const std::function<void()>& operation) {
  const Tensor last = device.allocate({1}, DType::float32, Purpose::staging);
  const auto wait = [&] {
    float number = 0;
    device.fill_zero(last, {});
    device.download(&number, last, {});
  };
  operation();
  wait();
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) operation();
  wait();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  state.SetIterationTime(taken.count());
  const double rate = static_cast<double>(state.iterations()) / taken.count();
  state.counters[flops_counter] = flops * rate;
  state.counters[calls_counter] = rate;
}

void product(benchmark::State& state, Device& device) {
  const int64_t n = state.range(0);
  const Tensor a = normal_numbers(device, {n, n}), b = normal_numbers(device, {n, n});
  const Tensor c = device.allocate({n, n}, DType::bfloat16, Purpose::staging);
  const auto size = static_cast<double>(n);
  measure(state, device, 2 * size * size * size, [&] { device.matmul({.c = c, .a = a, .b = b}, {}); });
}

// Causal self-attention of one sequence.
struct Attention {
  Attention(Device& device, int64_t tokens)
      : query(normal_numbers(device, {tokens, heads, head_dim})),
        key(normal_numbers(device, {tokens, kv_heads, head_dim})),
        value(normal_numbers(device, {tokens, kv_heads, head_dim})),
        output(device.allocate({tokens, heads, head_dim}, DType::bfloat16, Purpose::staging)),
        log_sum(device.allocate({tokens, heads}, DType::float32, Purpose::staging)),
        ranges(device.allocate({tokens, 4}, DType::int32, Purpose::staging)),
        slice{.key = key, .value = value} {
    std::vector<KeyRanges> causal;
    for (int32_t end = 1; end <= tokens; ++end) causal.push_back({.end0 = end, .begin1 = end, .end1 = end});
    device.upload(ranges, causal.data(), {});
  }

  void forward(Device& device) const {
    device.attention_forward(
        {.query = query, .ranges = ranges, .keys = {&slice, 1}, .scale = scale, .output = output, .log_sum = log_sum},
        {});
  }

  [[nodiscard]] double visible_pairs() const {
    const auto rows = static_cast<double>(query->rows());
    return rows * (rows + 1) / 2;
  }

  static constexpr float scale = 0.08838835F;  // 1/√head_dim
  Tensor query, key, value, output, log_sum, ranges;
  KeySlice slice;
};

void attention_forward(benchmark::State& state, Device& device) {
  const Attention attention(device, state.range(0));
  measure(state, device, 4 * heads * head_dim * attention.visible_pairs(), [&] { attention.forward(device); });
}

// With δ, which only backward needs.
void attention_backward(benchmark::State& state, Device& device) {
  const int64_t tokens = state.range(0);
  const Attention attention(device, tokens);
  attention.forward(device);
  const Tensor output_gradient = normal_numbers(device, {tokens, heads, head_dim});
  const Tensor delta = device.allocate({tokens, heads}, DType::float32, Purpose::staging);
  const Tensor query_gradient = device.allocate({tokens, heads, head_dim}, DType::float32, Purpose::staging);
  const Tensor key_gradient = device.allocate({tokens, kv_heads, head_dim}, DType::float32, Purpose::staging);
  const Tensor value_gradient = device.allocate({tokens, kv_heads, head_dim}, DType::float32, Purpose::staging);
  const KeyGradientSlice gradients{.key = key_gradient, .value = value_gradient};
  measure(state, device, 10 * heads * head_dim * attention.visible_pairs(), [&] {
    device.attention_delta(delta, attention.output, output_gradient, {});
    device.attention_backward({.query = attention.query,
                               .ranges = attention.ranges,
                               .keys = {&attention.slice, 1},
                               .scale = Attention::scale,
                               .log_sum = attention.log_sum,
                               .delta = delta,
                               .output_gradient = output_gradient,
                               .query_gradient = query_gradient,
                               .key_gradients = {&gradients, 1}},
                              {});
  });
}

// Prints the medians once all are there, since the roof is one of them.
class AgainstTheRoof final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.aggregate_name != "median") continue;
      medians_.push_back({.place = {run.family_index, run.per_family_instance_index},
                          .operation = run.run_name.function_name,
                          .size = run.run_name.args,
                          .flops = run.counters.at(flops_counter),
                          .calls = run.counters.at(calls_counter)});
    }
  }

  void Finalize() override {
    std::ranges::sort(medians_, {}, &Median::place);  // they came in the order by chance in which they ended
    double roof = 0;
    for (const Median& median : medians_) {
      if (median.operation == product_name) roof = std::max(roof, median.flops);
    }
    fmt::print("roof: {:.3f} TFLOP/s, the best bfloat16 product\n\n", roof * 1e-12);
    fmt::print("| operation | size | ms | TFLOP/s | of the roof |\n|---|---|---|---|---|\n");
    for (const auto& [place, operation, size, flops, calls] : medians_) {
      fmt::print("| {} | {} | {:.3f} | {:.3f} | {:.1f}% |\n", operation, size, 1e3 / calls, flops * 1e-12,
                 100 * flops / roof);
    }
  }

 private:
  struct Median {
    std::pair<int64_t, int64_t> place;  // among what was added
    std::string operation, size;
    double flops = 0, calls = 0;  // a second
  };

  std::vector<Median> medians_;
};

void add(const std::string& name, void (*operation)(benchmark::State&, Device&), Device& device,
         const std::vector<int64_t>& sizes) {
  auto* const added = benchmark::RegisterBenchmark(
      name.c_str(), [operation, &device](benchmark::State& state) { operation(state, device); });
  for (const int64_t size : sizes) added->Arg(size);
  added->UseManualTime()->MinTime(seconds)->Repetitions(repetitions);
}

std::unique_ptr<Device> make_device(const std::string& name, int threads) {
  return name == "cuda" ? make_cuda_device({}) : make_cpu_device({.threads = threads});
}

int run(int argc, char** argv) {
  std::string name = "cuda";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<int64_t> tokens = {2048, 4096, 8192, 16384, 32768, 65536, 131072};
  std::vector<int64_t> products = {2048, 4096, 8192, 16384};
  CLI::App app("Measures the operations of a device against the rate of its matrix products.");
  app.add_option("--device", name, "what is measured")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--threads", threads, "of the CPU")->check(CLI::PositiveNumber);
  app.add_option("--tokens", tokens, "lengths of attention")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--products", products, "sizes of cubic products")->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const std::unique_ptr<Device> device = make_device(name, threads);
  fmt::print("{}\n\n", device->description());
  add(product_name, product, *device, products);
  add("attention forward", attention_forward, *device, tokens);
  add("attention backward", attention_backward, *device, tokens);
  AgainstTheRoof reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  std::vector<char*> words = {*argv, interleave.data()};
  auto count = static_cast<int>(words.size());
  benchmark::Initialize(&count, words.data());
  try {
    return annulus::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernels_benchmark: error: {}\n", error.what());
    return 1;
  }
}
