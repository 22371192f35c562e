// What a plan says, against numbers of its own kind counted in another way; tests/whole/plan_test.cpp compares plans
// with runs.
#include "runtime/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/plan_length.h"
#include "tests/support/live_together.h"

namespace annulus {
namespace {

ModelConfig small_model() {
  return {.vocabulary = 211,
          .hidden = 32,
          .intermediate = 48,
          .layers = 3,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .layer_windows = {0, 0, 0}};
}

Settings settings_of(int64_t length) {
  Settings settings;
  settings.data.sequence_length = length;
  return settings;
}

RungPlan plan(const Settings& settings, const ModelConfig& model, const Mesh& mesh, const MemoryRule& rule) {
  PreparedRun run = worst_case(settings, model);
  run.mesh = mesh;
  run.memory = rule;
  return plan_rung(run, 1);
}

std::vector<RankPlan> plan_every_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh,
                                      const MemoryRule& rule) {
  PreparedRun run = worst_case(settings, model);
  run.mesh = mesh;
  run.memory = rule;
  std::vector<RankPlan> plans;
  for (run.mesh.rank = 0; run.mesh.rank < mesh.size(); ++run.mesh.rank) plans.push_back(plan_rank(run, 1));
  return plans;
}

// A run of anything, by chance.
struct RandomRun {
  Settings settings;
  ModelConfig model = small_model();
  Mesh mesh;
  MemoryRule rule;

  explicit RandomRun(uint32_t seed) {
    std::mt19937 random(seed);
    const auto among = [&]<class T>(std::initializer_list<T> choices) {
      return *(choices.begin() + random() % choices.size());
    };
    model.vocabulary = among({101, 5000});
    model.tied = among({true, false});
    model.layers = among({1, 2, 5});
    model.layer_windows.assign(static_cast<size_t>(model.layers), 0);
    model.layer_windows.back() = among({0, 7, 40});
    mesh = {.data_size = among({1, 1, 2}), .context_size = among({1, 2, 3, 4, 7})};
    settings = settings_of(among({2, 33, 256, 1999}));
    settings.model.dtype = among({DType::float32, DType::bfloat16});
    settings.parallel.layout = among({LayoutKind::zigzag, LayoutKind::contiguous});
    settings.train.micro_batch_size = among({1, 3});
    settings.train.global_batch_size = among({1, 6});
    settings.memory.mlp_tile = among({0, 16, 4096});
    settings.memory.logits_tile = among({0, 16, 110});
    settings.debug.poison = among({true, false});
    const std::vector<MemoryRule> ladder = memory_ladder(settings, model, mesh);
    rule = ladder[random() % ladder.size()];
  }
};

TEST(Plan, WastesLittleBetweenBuffers) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const RandomRun run(seed);
    SCOPED_TRACE(fmt::format("seed {}, {} ranks, {}", seed, run.mesh.size(), run.rule.to_string()));
    const MemoryPlan memory = plan(run.settings, run.model, run.mesh, run.rule).worst.memory;
    EXPECT_LE(static_cast<double>(memory.extent), 1.03 * static_cast<double>(memory.peak_bytes));
  }
}

TEST(Plan, PutsNothingWhereSomethingElseLives) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    RandomRun run(seed);
    run.settings.train.global_batch_size = 30;
    const MemoryPlan memory = plan(run.settings, run.model, run.mesh, run.rule).worst.memory;
    std::vector<PlannedAllocation> all = {memory.workspace};
    for (const auto& section : memory.sections) all.insert(all.end(), section.begin(), section.end());
    std::ranges::sort(all, {}, &PlannedAllocation::offset);
    int64_t overlaps = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& a = all[i];
      EXPECT_LE(a.offset + a.bytes, memory.extent);
      for (size_t j = i + 1; j < all.size() && all[j].offset < a.offset + a.bytes; ++j) {
        overlaps += live_together(a, all[j]) ? 1 : 0;
      }
    }
    EXPECT_EQ(overlaps, 0) << "seed " << seed << ", " << all.size() << " allocations";
  }
}

// Hidden, intermediate, layers, heads, vocabulary, tied head.
struct PublishedShape {
  const char* name;
  int64_t hidden, intermediate, layers, heads, vocabulary;
  bool tied;

  [[nodiscard]] ModelConfig config() const {
    return {.vocabulary = vocabulary,
            .hidden = hidden,
            .intermediate = intermediate,
            .layers = layers,
            .heads = heads,
            .kv_heads = 8,
            .head_dim = 128,
            .tied = tied,
            .layer_windows = std::vector<int64_t>(static_cast<size_t>(layers), 0)};
  }
};
constexpr PublishedShape shapes[] = {
    {"Qwen3-0.6B", 1024, 3072, 28, 16, 151936, true},         {"Qwen3-4B", 2560, 9728, 36, 32, 151936, true},
    {"SDAR-4B", 2560, 9728, 36, 32, 151936, false},           {"Qwen3-8B", 4096, 12288, 36, 32, 151936, false},
    {"Llama-8B's shape", 4096, 14336, 32, 32, 128256, false}, {"Qwen3-32B", 5120, 25600, 64, 64, 151936, false}};

TEST(Plan, WastesLittleBetweenTheBuffersOfPublishedShapes) {
  for (const PublishedShape& shape : shapes) {
    for (const int ranks : {1, 8}) {
      const Settings settings = settings_of(65'536);
      const Mesh mesh{.context_size = ranks};
      for (const MemoryRule& rule : memory_ladder(settings, shape.config(), mesh)) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {}", shape.name, ranks, rule.to_string()));
        const MemoryPlan memory = plan(settings, shape.config(), mesh, rule).worst.memory;
        EXPECT_LE(static_cast<double>(memory.extent), 1.03 * static_cast<double>(memory.peak_bytes));
      }
    }
  }
}

TEST(Plan, OfTheRanksThatDifferIsThatOfAll) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const RandomRun run(seed);
    SCOPED_TRACE(fmt::format("seed {}, {} ranks, {}", seed, run.mesh.size(), run.rule.to_string()));
    const RungPlan rung = plan(run.settings, run.model, run.mesh, run.rule);
    int64_t largest = 0;
    for (const RankPlan& rank : plan_every_rank(run.settings, run.model, run.mesh, run.rule)) {
      largest = std::max(largest, rank.memory.extent);
      EXPECT_EQ(rank.memory.stored, rung.worst.memory.stored);
    }
    EXPECT_EQ(rung.worst.memory.extent, largest);
  }
}

// However many micro-batches a step has, three are planned; what all of them cost is counted in full to compare.
TEST(Plan, OfManyMicroBatchesIsThatOfThree) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    RandomRun random(seed);
    const int64_t micro_batch = random.mesh.data_size * random.settings.train.micro_batch_size;
    SCOPED_TRACE(fmt::format("seed {}, {} ranks, {}", seed, random.mesh.size(), random.rule.to_string()));
    for (const int64_t sequences : {4 * micro_batch, 7 * micro_batch + 1}) {
      random.settings.train.global_batch_size = sequences;
      PreparedRun run = worst_case(random.settings, random.model);
      run.mesh = random.mesh;
      run.memory = random.rule;
      const RankPlan many = plan_rank(run, 1);
      const StepCost counted = cost_of_step(run, 1);
      EXPECT_EQ(run.settings.train.global_batch_size, sequences);
      EXPECT_EQ(many.step.operations.attention, counted.operations.attention);
      EXPECT_EQ(many.step.operations.matmul, counted.operations.matmul);
      EXPECT_EQ(many.step.ring_bytes, counted.ring_bytes);
      EXPECT_EQ(many.step.parameter_bytes, counted.parameter_bytes);
      EXPECT_EQ(many.step.disk_traffic_bytes, counted.disk_traffic_bytes);
      run.settings.train.global_batch_size = 3 * micro_batch;
      EXPECT_EQ(many.memory.extent, plan_rank(run, 1).memory.extent);
    }
  }
}

// Every pair of a causal sequence once forward and 2.5 times backward, and again forward where attention is recomputed,
// however the rows are shared out.
TEST(Plan, CountsTheWorkOfAttentionWhateverTheRanks) {
  const int64_t length = 240;
  const Settings settings = settings_of(length);
  const ModelConfig model = small_model();
  const auto pairs = static_cast<double>(length * (length + 1) / 2);
  const auto layer = pairs * static_cast<double>(model.heads * model.head_dim);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const MemoryRule& rule : memory_ladder(settings, model, {.context_size = ranks})) {
      double attention = 0;
      for (const RankPlan& rank : plan_every_rank(settings, model, {.context_size = ranks}, rule)) {
        attention += rank.step.operations.attention;
      }
      const double factor = rule.keeps_attention() ? 4 + 10 : 4 + 4 + 10;
      EXPECT_EQ(attention, factor * layer * static_cast<double>(model.layers))
          << ranks << " ranks, " << rule.to_string();
    }
  }
}

TEST(Plan, CountsTheOtherProducts) {
  const int64_t length = 240;
  const ModelConfig m = small_model();
  const int64_t layer = m.hidden * m.head_dim * (2 * m.heads + 2 * m.kv_heads) + 3 * m.hidden * m.intermediate;
  const int64_t forward = 2 * length * (m.layers * layer + m.hidden * m.vocabulary);
  const MemoryRule keep_all = {.recompute = Recompute::none, .mlp_rows = length, .logits_rows = 16, .parameters = {}};
  const RungPlan rung = plan(settings_of(length), m, {}, keep_all);
  EXPECT_EQ(rung.step.operations.matmul, static_cast<double>(3 * forward));
}

// Each rank sends its shard of every unit to each other once for each gathering, and a shard's worth of gradient back.
TEST(Plan, CountsWhatIsSent) {
  const Settings settings = settings_of(64);
  const ModelConfig model = small_model();
  const MemoryRule rule = {.recompute = Recompute::none, .mlp_rows = 32, .logits_rows = 16, .parameters = {}};
  const Mesh two{.context_size = 2}, four{.context_size = 4};
  const auto sent = [&](const Mesh& mesh) { return plan(settings, model, mesh, rule).step.parameter_bytes; };
  const auto parameters = static_cast<double>(model.parameters());
  // An untied model: all but the embedding twice, in bfloat16, but head and last layer stay; all gradients in float32.
  EXPECT_GT(static_cast<double>(sent(two)), parameters / 2 * (2 + 4));
  EXPECT_LT(static_cast<double>(sent(two)), 1.1 * parameters / 2 * (2 + 2 + 4));
  EXPECT_NEAR(static_cast<double>(sent(four)) / static_cast<double>(sent(two)), 1.5, 0.1);
  // The first rank sees all 32 rows of the second, that one the first 16 of the other's. Their keys and values come
  // once forward and once backward, and gradients in float32 go back.
  const int64_t row = 2 * model.kv_heads * model.head_dim;
  const auto plans = plan_every_rank(settings, model, two, rule);
  EXPECT_EQ(plans[0].step.ring_bytes + plans[1].step.ring_bytes, model.layers * row * (32 + 16) * (2 + 2 + 4));
}

TEST(Plan, SaysWhenItsPeakComes) {
  const MemoryRule rule = {.recompute = Recompute::layer, .mlp_rows = 16, .logits_rows = 64, .parameters = {}};
  ModelConfig wide = small_model();
  wide.vocabulary = 60'000;  // its logits are larger than all else
  const PeakMoment logits = plan(settings_of(64), wide, {}, rule).worst.peak;
  EXPECT_EQ(logits.phase, Phase::backward);
  EXPECT_EQ(logits.purpose, Purpose::logits);
  MemoryRule all_rows = rule;
  all_rows.mlp_rows = 4096;
  const PeakMoment mlp = plan(settings_of(4096), small_model(), {}, all_rows).worst.peak;
  EXPECT_EQ(mlp.phase, Phase::backward);
  EXPECT_GT(mlp.bytes, 0);
}

TEST(Plan, CountsWhatAStepMovesToStorageAndNotWhatLoadingDid) {
  const Settings settings = settings_of(64);
  MemoryRule rule = {.recompute = Recompute::layer, .mlp_rows = 16, .logits_rows = 16, .parameters = {}};
  rule.parameters.optimizer = Place::disk;
  const RungPlan rung = plan(settings, small_model(), {}, rule);
  // Master weights and both moments, to the device and back.
  EXPECT_EQ(rung.step.disk_traffic_bytes, 2 * rung.worst.memory.stored.disk);
  EXPECT_EQ(rung.step.host_traffic_bytes, 0);
}

TEST(LongestSequence, FitsAndOneTokenMoreDoesNot) {
  const ModelConfig model = small_model();
  for (const int ranks : {1, 3}) {
    for (const LayoutKind layout : {LayoutKind::zigzag, LayoutKind::contiguous}) {
      for (const int64_t start : {2, 500, 100'000}) {
        Settings settings = settings_of(start);
        settings.parallel.layout = layout;
        const Mesh mesh{.context_size = ranks};
        const Budget budget{.memory = 20'000'000, .host = 0, .disk = 1'000'000};
        const LongestSequence longest = longest_sequence(settings, model, mesh, 1, budget);
        SCOPED_TRACE(fmt::format("{} ranks, from {}: {}", ranks, start, longest.length));
        EXPECT_FALSE(longest.limited);
        EXPECT_FALSE(longest.bound.empty());
        settings.data.sequence_length = longest.length;
        EXPECT_NO_THROW(fit_rank(settings, model, mesh, 1, budget));
        ++settings.data.sequence_length;
        EXPECT_THROW(fit_rank(settings, model, mesh, 1, budget), MemoryError);
      }
    }
  }
}

TEST(LongestSequence, IsNoneWhereTheWeightsAloneAreTooMany) {
  Settings settings = settings_of(100);
  settings.memory.offload_optimizer = settings.memory.offload_gradients = Place::device;
  settings.memory.offload_parameters = settings.memory.offload_checkpoints = Place::device;
  const LongestSequence longest = longest_sequence(settings, small_model(), {}, 1, {.memory = 1000});
  EXPECT_EQ(longest.length, 0);
  EXPECT_EQ(longest.bound, "optimizer");
}

TEST(LongestSequence, IsNotLookedForBeyondAllUse) {
  const LongestSequence longest = longest_sequence(settings_of(100), small_model(), {}, 1, {});
  EXPECT_TRUE(longest.limited);
  EXPECT_EQ(longest.length, longest_planned);
}

}  // namespace
}  // namespace annulus
