// The numbers do not depend on how the work was split: random small models, documents and meshes against one rank that
// takes one sequence at a time, compared tensor by tensor.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <tuple>

#include "kernels/device.h"
#include "runtime/run.h"
#include "tests/support/run_devices.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace annulus {
namespace {

struct Outcome {
  std::vector<StepReport> reports;
  HostTensors gradient;  // of the first step
  HostTensors weights;   // after the last
};

class Recorder : public Listener {
 public:
  explicit Recorder(std::vector<StepReport>& reports) : reports_(reports) {}
  void finished(const StepReport& report) override { reports_.push_back(report); }

 private:
  std::vector<StepReport>& reports_;
};

Outcome run(Settings settings, const std::filesystem::path& output, int ranks) {
  settings.output.directory = output;
  settings.debug.save_gradients = true;
  settings.runtime.device = run_device();
  Outcome outcome;
  Recorder recorder(outcome.reports);
  train_on(settings, ranks, recorder);
  outcome.gradient = read_tensors(output / "gradient.safetensors");
  outcome.weights = read_tensors(output / "model" / "model.safetensors");
  return outcome;
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

// Largest relative differences from one rank in float32: the contract's, with that run in the place of the float64
// reference.
struct Bounds {
  double loss, grad_norm, gradient;
  double no_gradient;  // where a tensor's true gradient is zero, of the whole norm
};
constexpr Bounds in_float32 = {2e-6, 1e-5, 2e-5, 2e-6};
constexpr Bounds in_bfloat16 = {1e-3, 1e-2, 6e-2, 6e-3};

// How far a run is off the run of one rank in float32.
struct Errors {
  std::vector<double> loss, grad_norm;     // by step
  std::map<std::string, double> gradient;  // by tensor
};

Errors errors_of(const Outcome& run, const Outcome& one) {
  Errors errors;
  for (size_t i = 0; i < one.reports.size(); ++i) {
    errors.loss.push_back(std::abs(run.reports.at(i).loss - one.reports[i].loss));
    errors.grad_norm.push_back(std::abs(run.reports.at(i).grad_norm - one.reports[i].grad_norm));
  }
  for (const auto& [name, tensor] : one.gradient) {
    errors.gradient[name] = distance(run.gradient.at(name).values, tensor.values);
  }
  return errors;
}

// `split` is off by no more than the bounds or, in a model so small that one rank in the same dtype is off by more than
// they allow, by no more than three times that.
void expect_equivalent(const Outcome& split, const Outcome& one, const Errors& unsplit, const Bounds& bounds) {
  const Errors errors = errors_of(split, one);
  for (size_t i = 0; i < one.reports.size(); ++i) {
    EXPECT_LE(errors.loss[i], std::max(bounds.loss * one.reports[i].loss, 3 * unsplit.loss[i]));
    EXPECT_LE(errors.grad_norm[i], std::max(bounds.grad_norm * one.reports[i].grad_norm, 3 * unsplit.grad_norm[i]));
    EXPECT_EQ(split.reports[i].label_tokens, one.reports[i].label_tokens);
    EXPECT_EQ(split.reports[i].tokens, one.reports[i].tokens);
  }
  const double whole = one.reports[0].grad_norm;
  EXPECT_EQ(split.gradient.size(), one.gradient.size());
  for (const auto& [name, error] : errors.gradient) {
    const double size = norm(one.gradient.at(name).values);
    const bool none = size < 1e-6 * whole;  // zero but for rounding: queries and keys that see one key
    EXPECT_LE(error,
              std::max(none ? bounds.no_gradient * whole : bounds.gradient * size, 3 * unsplit.gradient.at(name)))
        << name << " of size " << size;
  }
}

// A tensor whose true gradient is zero moves by rounding alone, which AdamW magnifies; it is left out.
void expect_same_weights(const Outcome& split, const Outcome& one, const HostTensors& start) {
  for (const auto& [name, reference] : one.weights) {
    if (norm(one.gradient.at(name).values) < 1e-6 * one.reports[0].grad_norm) continue;
    const double moved = distance(reference.values, start.at(name).values);
    EXPECT_LE(distance(split.weights.at(name).values, reference.values), 1e-3 * moved) << name;
  }
}

class Choices {
 public:
  explicit Choices(uint32_t seed) : random_(seed) {}
  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool coin() { return between(0, 1) == 1; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<int64_t>(values.size()) - 1));
  }

 private:
  std::mt19937 random_;
};

TinyModel random_model(Choices& choose) {
  TinyModel model;
  model.kv_heads = choose.between(1, 3);
  model.heads = model.kv_heads * choose.between(1, 4);
  model.head_dim = device_is_slow() ? 8 * choose.between(1, 3) : 2 * choose.between(1, 12);
  model.hidden = choose.between(3, 40);
  model.intermediate = choose.between(1, 50);
  model.layers = choose.between(1, 3);
  model.vocabulary = choose.between(5, 150);
  model.tied = choose.coin();
  return model;
}

void check_splits(int seed, DType dtype, int splits, const Bounds& bounds) {
  Choices choose(static_cast<uint32_t>(seed));
  const TemporaryDirectory folder;
  const TinyModel model = random_model(choose);
  write_model(folder / "source", model, static_cast<uint64_t>(seed));
  std::vector<int64_t> lengths(static_cast<size_t>(choose.between(1, 12)));
  for (int64_t& length : lengths) length = choose.between(1, choose.of<int64_t>({4, 30, 120}));
  lengths.push_back(40);  // so that there is always something to learn from
  write_documents(folder / "documents.jsonl", random_documents(lengths, model.vocabulary, 5));

  Settings settings;
  settings.model = {.path = folder / "source", .dtype = DType::float32};
  settings.data = {.train = folder / "documents.jsonl",
                   .sequence_length = choose.between(20, 90),
                   .packing = choose.coin() ? Packing::concat : Packing::none,
                   .shuffle = choose.coin(),
                   .pad_token_id = static_cast<int32_t>(choose.between(0, model.vocabulary - 1))};
  settings.attention.sliding_window = choose.of<int64_t>({0, 0, 1, 4, 17});
  settings.optimizer.learning_rate = 1e-3;
  settings.optimizer.eps = 1e-6;
  settings.optimizer.max_grad_norm = choose.of({0.0, 0.5, 100.0});
  settings.train = {.steps = 2, .global_batch_size = choose.between(3, 6)};
  settings.parallel = {.context_parallel_size = 1, .data_parallel_size = 1, .layout = LayoutKind::contiguous};
  const Outcome one = run(settings, folder / "one", 1);

  settings.model.dtype = dtype;
  const Errors unsplit = errors_of(dtype == DType::float32 ? one : run(settings, folder / "unsplit", 1), one);
  for (int split = 0; split < splits; ++split) {
    settings.parallel = {.context_parallel_size = static_cast<int>(choose.between(1, 4)),
                         .data_parallel_size = static_cast<int>(choose.between(1, 2)),
                         .layout = choose.coin() ? LayoutKind::zigzag : LayoutKind::contiguous};
    settings.train.micro_batch_size = choose.between(1, 3);
    settings.memory = {.recompute = choose.of({Recompute::none, Recompute::keep_attention, Recompute::layer}),
                       .mlp_tile = choose.of<int64_t>({0, 0, 7}),
                       .logits_tile = choose.of<int64_t>({0, 16}),
                       .offload_checkpoints = choose.of({Place::device, run_storage()}),
                       .offload_gradients = choose.of({Place::device, run_storage()}),
                       .offload_optimizer = choose.of({Place::device, run_storage()}),
                       .offload_parameters = choose.of({Place::device, run_storage()})};
    settings.debug.poison = choose.coin();
    SCOPED_TRACE(fmt::format("context {} x data {}, {}, micro-batch {}", settings.parallel.context_parallel_size,
                             settings.parallel.data_parallel_size,
                             settings.parallel.layout == LayoutKind::zigzag ? "zigzag" : "contiguous",
                             settings.train.micro_batch_size));
    const int ranks = settings.parallel.context_parallel_size * settings.parallel.data_parallel_size;
    const Outcome outcome = run(settings, folder / "split", ranks);
    expect_equivalent(outcome, one, unsplit, bounds);
    if (dtype == DType::float32) {
      expect_same_weights(outcome, one, read_tensors(folder / "source" / "model.safetensors"));
    }
  }
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.reports.size(), b.reports.size());
  for (size_t i = 0; i < a.reports.size(); ++i) {
    EXPECT_EQ(a.reports[i].loss, b.reports[i].loss);
    EXPECT_EQ(a.reports[i].grad_norm, b.reports[i].grad_norm);
  }
  for (const auto& [name, tensor] : a.gradient) EXPECT_EQ(b.gradient.at(name).values, tensor.values) << name;
  for (const auto& [name, tensor] : a.weights) EXPECT_EQ(b.weights.at(name).values, tensor.values) << name;
}

class MemoryRules : public testing::TestWithParam<std::tuple<DType, int>> {
 protected:
  MemoryRules() {
    TinyModel model;
    model.layers = device_is_slow() ? 2 : 5;
    write_model(folder_ / "source", model, 3);
    write_documents(folder_ / "documents.jsonl",
                    random_documents(std::vector<int64_t>{900, 30, 700}, model.vocabulary, 5));
    settings_.data = {.train = folder_ / "documents.jsonl", .sequence_length = device_is_slow() ? 61 : 611};
    settings_.train = {.steps = 2, .global_batch_size = 2};
    settings_.model = {.path = folder_ / "source", .dtype = std::get<DType>(GetParam())};
    settings_.memory = in_memory;
  }

  Outcome run_as_set(const std::string& name) { return run(settings_, folder_ / name, std::get<int>(GetParam())); }

  const MemorySettings in_memory = {.recompute = Recompute::none,
                                    .mlp_tile = 0,
                                    .logits_tile = 0,
                                    .offload_checkpoints = Place::device,
                                    .offload_gradients = Place::device,
                                    .offload_optimizer = Place::device,
                                    .offload_parameters = Place::device};
  TemporaryDirectory folder_;
  Settings settings_;
};

// What is computed again is computed from the same numbers in the same order.
TEST_P(MemoryRules, GiveTheSameBitsWhateverIsComputedAgain) {
  const Outcome kept = run_as_set("kept");
  for (const Recompute recompute : {Recompute::keep_attention, Recompute::layer}) {
    settings_.memory.recompute = recompute;
    const Outcome again = run_as_set("again");
    expect_same_bits(kept, again);
    if (device_is_slow()) continue;  // and so small that all is workspace
    EXPECT_LT(again.reports[0].peak_bytes, kept.reports[0].peak_bytes);
  }
}

// Every combination of what is computed again and what waits beside the device.
TEST_P(MemoryRules, GiveTheSameBitsWhateverLeavesTheDevice) {
  settings_.data.sequence_length = device_is_slow() ? 31 : 97;
  settings_.train.steps = 1;
  settings_.debug.poison = true;
  const Outcome kept = run_as_set("kept");
  const auto place = [](int bit) { return bit == 0 ? Place::device : run_storage(); };
  for (const Recompute recompute : {Recompute::none, Recompute::keep_attention, Recompute::layer}) {
    for (int places = 0; places < 16; ++places) {
      if (device_is_slow() && places % 5 != 0) continue;  // none, two and two, and all
      SCOPED_TRACE(fmt::format("recompute {}, places {:04b}", static_cast<int>(recompute), places));
      settings_.memory.recompute = recompute;
      settings_.memory.offload_checkpoints = place(places & 1);
      settings_.memory.offload_gradients = place(places & 2);
      settings_.memory.offload_optimizer = place(places & 4);
      settings_.memory.offload_parameters = place(places & 8);
      expect_same_bits(kept, run_as_set("moved"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypesAndRanks, MemoryRules,
                         testing::Combine(testing::Values(DType::float32, DType::bfloat16), testing::Values(1, 3)));

class Equivalence : public testing::TestWithParam<int> {};

TEST_P(Equivalence, ASplitRunIsTheRunOfOneRank) {
  check_splits(GetParam(), DType::float32, 3, in_float32);
}

TEST_P(Equivalence, ASplitRunInBfloat16IsTheRunOfOneRank) {
  check_splits(GetParam(), DType::bfloat16, 1, in_bfloat16);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Equivalence, testing::Range(0, device_is_slow() ? 4 : 60));

}  // namespace
}  // namespace annulus
