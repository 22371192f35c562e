#include "tests/benchmarks/table.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace annulus {
namespace {

constexpr int repetitions = 5;  // their median counts
constexpr const char* work_counter = "work";
constexpr const char* calls_counter = "calls";

// Operations are queued behind one another and waited for once, as in a training step; what waits is a download. The
// first call is not measured: it chooses algorithms and loads kernels.
void time_calls(benchmark::State& state, Workbench& bench, const Operation& operation) {
  Device& device = bench.device();
  const View last = bench.room({1}, DType::float32);
  const auto wait = [&] {
    float number = 0;
    device.fill_zero(last, {});
    device.download(&number, last, {});
  };
  operation.call();
  wait();
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) operation.call();
  wait();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  state.SetIterationTime(taken.count());
  const double calls = static_cast<double>(state.iterations()) / taken.count();
  state.counters[work_counter] = operation.work * calls;
  state.counters[calls_counter] = calls;
}

// Gives each row's medians to `take`, with the row's place among what was registered.
class Medians final : public benchmark::BenchmarkReporter {
 public:
  using Take = std::function<void(size_t place, double work, double calls)>;
  explicit Medians(Take take) : take_(std::move(take)) {}

  bool ReportContext(const Context& /*context*/) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred) throw InternalError(fmt::format("{}: {}", run.benchmark_name(), run.error_message));
      if (run.aggregate_name != "median") continue;
      take_(static_cast<size_t>(run.family_index), run.counters.at(work_counter), run.counters.at(calls_counter));
    }
  }

 private:
  Take take_;
};

std::string shown(Work work, double rate) {
  return work == Work::flops ? fmt::format("{:.3f} TFLOP/s", rate * 1e-12) : fmt::format("{:.2f} GB/s", rate * 1e-9);
}

}  // namespace

std::unique_ptr<Device> make_device(const std::string& name, int threads) {
  return name == "cuda" ? make_cuda_device({}) : make_cpu_device({.threads = threads});
}

DType dtype_named(const std::string& name) {
  return name == "float32" ? DType::float32 : DType::bfloat16;
}

View Workbench::room(const Shape& shape, DType dtype) {
  tensors_.push_back(device_.allocate(shape, dtype, Purpose::staging));
  device_.fill_zero(tensors_.back(), {});
  return tensors_.back();
}

View Workbench::numbers(const Shape& shape, DType dtype, double deviation) {
  const View numbers = room(shape, dtype);
  const Tensor exact = device_.allocate(shape, DType::float32, Purpose::staging);
  device_.fill_normal({.destination = exact->flat(), .seed = tensors_.size(), .deviation = deviation}, {});
  device_.copy(numbers, exact, {});
  return numbers;
}

void Table::add_roof(const std::string& name, Work work, DType dtype, const std::vector<int64_t>& sizes, Make make) {
  add_rows(true, name, work, dtype, sizes, make);
}

void Table::add(const std::string& name, Work work, DType dtype, const std::vector<int64_t>& sizes, Make make) {
  add_rows(false, name, work, dtype, sizes, make);
}

void Table::add_rows(bool roof, const std::string& name, Work work, DType dtype, const std::vector<int64_t>& sizes,
                     const Make& make) {
  for (const int64_t size : sizes) {
    rows_.push_back({.name = name, .work = work, .dtype = dtype, .size = size, .roof = roof});
    auto* const added = benchmark::RegisterBenchmark(name.c_str(), [make, size, this](benchmark::State& state) {
      Workbench bench(device_);
      time_calls(state, bench, make(bench, size));
    });
    added->UseManualTime()->Repetitions(repetitions);
    if (repetition_.calls > 0) {
      added->Iterations(repetition_.calls);
    } else {
      added->MinTime(repetition_.seconds);
    }
  }
}

void Table::measure() {
  // Google Benchmark takes this from the words of a command line alone.
  std::string program;
  std::string interleave = fmt::format("--benchmark_enable_random_interleaving={}", repetition_.calls == 0);
  std::vector<char*> words = {program.data(), interleave.data()};
  auto count = static_cast<int>(words.size());
  benchmark::Initialize(&count, words.data());
  Medians medians([this](size_t place, double work, double calls) {
    rows_.at(place).rate = work;
    rows_.at(place).calls = calls;
  });
  benchmark::RunSpecifiedBenchmarks(&medians);
}

const Table::Row& Table::roof_of(Work work, DType dtype) const {
  const Row* best = nullptr;
  for (const Row& row : rows_) {
    if (row.roof && row.work == work && row.dtype == dtype && (best == nullptr || row.rate > best->rate)) best = &row;
  }
  require(best != nullptr, "every operation has a roof");
  return *best;
}

void Table::print() const {
  std::vector<const Row*> roofs;
  for (const Row& row : rows_) {
    const Row* roof = &roof_of(row.work, row.dtype);
    if (std::ranges::find(roofs, roof) == roofs.end()) roofs.push_back(roof);
  }
  for (const Row* roof : roofs) {
    fmt::print("roof: {}, the best {} {}\n", shown(roof->work, roof->rate), name_of(roof->dtype), roof->name);
  }
  fmt::print("\n| operation | dtype | size | ms | rate | of the roof |\n|---|---|---|---|---|---|\n");
  for (const Row& row : rows_) {
    fmt::print("| {} | {} | {} | {:.3f} | {} | {:.1f}% |\n", row.name, name_of(row.dtype), row.size, 1e3 / row.calls,
               shown(row.work, row.rate), 100 * row.rate / roof_of(row.work, row.dtype).rate);
  }
}

}  // namespace annulus
