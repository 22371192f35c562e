#include "runtime/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "parallel/plan_transport.h"
#include "runtime/trainer.h"

namespace annulus {
namespace {

// One document as long as a sequence, every token an answer: no mask sees more keys.
class WorstCase final : public DocumentSource {
 public:
  explicit WorstCase(int64_t length) : length_(length) {}

  [[nodiscard]] int64_t count() const override { return 1; }
  [[nodiscard]] int64_t length(int64_t /*document*/) const override { return length_; }
  void read(int64_t /*document*/, int64_t /*first*/, std::span<int32_t> tokens,
            std::span<int32_t> labels) const override {
    std::ranges::fill(tokens, 0);
    std::ranges::fill(labels, 0);
  }

 private:
  int64_t length_;
};

std::unique_ptr<WorkspaceSizes> workspace_sizes(DeviceKind device, int threads) {
  return device == DeviceKind::cuda ? cuda_workspace_sizes() : cpu_workspace_sizes(threads);
}

// A run of one step on a rank that is not there.
class Rehearsal final : private Listener {
 public:
  Rehearsal(PreparedRun& run, int threads)
      : device_(workspace_sizes(run.settings.runtime.device, threads), run.settings.debug.poison),
        transport_(run.mesh.rank, run.mesh.size()) {
    Trainer trainer(run, device_, transport_, *this);
    trainer.rehearse_set_weights();
    trainer.step(1);
    entered(Phase::save, 1);
    trainer.rehearse_save();
    memory_ = device_.recording().recorded();
    memory_.stored = {.host = device_.host().reserved_bytes(), .disk = device_.disk().reserved_bytes()};
  }

  [[nodiscard]] MemoryPlan take_memory() { return std::move(memory_); }  // not yet placed
  [[nodiscard]] StepCost step() const { return cost_between(when(Phase::data, 0), when(Phase::save, 0)); }
  [[nodiscard]] StepCost second_micro_batch() const { return cost_between(when(Phase::data, 1), when(Phase::data, 2)); }

  [[nodiscard]] Phase phase_at(int64_t time) const {
    const auto next = std::ranges::upper_bound(moments_, time, {}, &Moment::time);
    return next == moments_.begin() ? Phase::load : std::prev(next)->phase;
  }

 private:
  struct Moment {
    int64_t time;   // as lives are counted
    Phase phase;    // begins
    StepCost cost;  // so far
  };

  void entered(Phase phase, int64_t /*step*/) override {
    const PlanTransport& sent = transport_;
    moments_.push_back(
        {.time = device_.recording().time(),
         .phase = phase,
         .cost = {.operations = device_.operations(),
                  .ring_bytes = sent.sent_bytes(Channel::keys) + sent.sent_bytes(Channel::key_gradients),
                  .parameter_bytes = sent.sent_bytes(Channel::parameters) + sent.sent_bytes(Channel::gradients),
                  .host_traffic_bytes = device_.host().moved_bytes(),
                  .disk_traffic_bytes = device_.disk().moved_bytes()}});
  }

  // The phase's beginning after it had begun `times` before.
  [[nodiscard]] const Moment& when(Phase phase, int64_t times) const {
    const auto found =
        std::ranges::find_if(moments_, [&](const Moment& moment) { return moment.phase == phase && times-- == 0; });
    require(found != moments_.end(), "every phase of a step begins");
    return *found;
  }

  static StepCost cost_between(const Moment& begin, const Moment& end) {
    StepCost cost = end.cost;
    cost.add(begin.cost, -1);
    return cost;
  }

  PlanDevice device_;
  PlanTransport transport_;
  std::vector<Moment> moments_;
  MemoryPlan memory_;  // all that was recorded, the trainer's end apart
};

// As long as this lives, a step has no micro-batches but the first two and the last: those between are like the second.
class ShortStep {
 public:
  explicit ShortStep(PreparedRun& run)
      : train_(run.settings.train),
        all_(train_.global_batch_size),
        left_out_(std::max<int64_t>(0, run.micro_batches() - 3)) {
    train_.global_batch_size -= left_out_ * run.mesh.data_size * train_.micro_batch_size;
  }
  ShortStep(const ShortStep&) = delete;
  ShortStep& operator=(const ShortStep&) = delete;
  ~ShortStep() { train_.global_batch_size = all_; }

  [[nodiscard]] int64_t left_out() const { return left_out_; }

 private:
  TrainSettings& train_;
  int64_t all_, left_out_;
};

PeakMoment peak_of(const MemoryPlan& plan, Phase phase) {
  PeakMoment peak{.phase = phase};
  for (const auto& section : plan.sections) {
    for (const PlannedAllocation& allocation : section) {
      for (const Life& life : allocation.lives) {
        if (life.begin == plan.peak_time) peak = {phase, allocation.purpose, allocation.bytes};
      }
    }
  }
  return peak;
}

[[noreturn]] void refuse(const RankPlan& plan, const Budget& budget) {
  const auto bytes = plan.memory.bytes_at_peak();
  const auto largest = std::ranges::max_element(bytes);
  const auto& [host, disk] = plan.memory.stored;
  std::string needs =
      fmt::format("{} bytes on a rank, but runtime.memory_budget is {}", plan.memory.extent, budget.memory);
  if (host > budget.host) needs += fmt::format("; {} of host memory, but runtime.host_budget is {}", host, budget.host);
  if (disk > budget.disk) needs += fmt::format("; {} of disk, but runtime.disk_budget is {}", disk, budget.disk);
  throw MemoryError(fmt::format(
      "this run needs {}, and no setting of memory.* that may be chosen makes it fit; the largest part of the memory "
      "is "
      "{} with {} bytes. More ranks, a shorter data.sequence_length or a smaller train.micro_batch_size help; `annulus "
      "plan` shows by how much",
      needs, name_of(static_cast<Purpose>(largest - bytes.begin())), *largest));
}

}  // namespace

PreparedRun worst_case(const Settings& settings, const ModelConfig& model) {
  auto documents = std::make_unique<WorstCase>(settings.data.sequence_length);
  return {.settings = settings,
          .model = model,
          .mesh = {},
          .memory = {},
          .sequences = std::make_unique<SequenceSet>(std::move(documents), settings.data)};
}

RankPlan plan_rank(PreparedRun& run, int threads) {
  const ShortStep shorter(run);
  Rehearsal rehearsal(run, threads);
  RankPlan plan{.rank = run.mesh.rank,
                .rule = run.memory,
                .memory = rehearsal.take_memory(),
                .peak = {},
                .step = rehearsal.step()};
  if (shorter.left_out() > 0) plan.step.add(rehearsal.second_micro_batch(), shorter.left_out());
  place(plan.memory);
  plan.peak = peak_of(plan.memory, rehearsal.phase_at(plan.memory.peak_time));
  return plan;
}

StepCost cost_of_step(PreparedRun& run, int threads) {
  return Rehearsal(run, threads).step();
}

template <class Join>
void StepCost::join(const StepCost& other, const Join& join) {
  join(operations.attention, other.operations.attention);
  join(operations.matmul, other.operations.matmul);
  join(ring_bytes, other.ring_bytes);
  join(parameter_bytes, other.parameter_bytes);
  join(host_traffic_bytes, other.host_traffic_bytes);
  join(disk_traffic_bytes, other.disk_traffic_bytes);
}

void StepCost::raise_to(const StepCost& other) {
  join(other, [](auto& own, auto theirs) { own = std::max(own, theirs); });
}

void StepCost::add(const StepCost& other, int64_t times) {
  join(other, [&]<class Number>(Number& own, Number theirs) { own += static_cast<Number>(times) * theirs; });
}

std::vector<int> kinds_of_ranks(const Mesh& mesh) {
  std::vector<int> ranks = {0};
  for (const int rank : {1, mesh.context_size - 1}) {
    if (rank < mesh.size() && rank > ranks.back()) ranks.push_back(rank);
  }
  return ranks;
}

RungPlan plan_rung(PreparedRun& run, int threads) {
  RungPlan rung;
  for (const int rank : kinds_of_ranks(run.mesh)) {
    run.mesh.rank = rank;
    RankPlan plan = plan_rank(run, threads);
    rung.step.raise_to(plan.step);
    if (rank == 0 || plan.memory.extent > rung.worst.memory.extent) rung.worst = std::move(plan);
  }
  return rung;
}

std::vector<RungPlan> plan_ladder(PreparedRun& run, int threads) {
  std::vector<RungPlan> ladder;
  for (const MemoryRule& rule : memory_ladder(run.settings, run.model, run.mesh)) {
    run.memory = rule;
    ladder.push_back(plan_rung(run, threads));
  }
  return ladder;
}

RankPlan fit_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads,
                  const Budget& budget) {
  PreparedRun run = worst_case(settings, model);
  run.mesh = mesh;
  RungPlan last;
  for (const MemoryRule& rule : memory_ladder(settings, model, mesh)) {
    run.memory = rule;
    last = plan_rung(run, threads);
    if (!last.worst.fits(budget)) continue;
    run.mesh = mesh;
    return plan_rank(run, threads);
  }
  refuse(last.worst, budget);
}

}  // namespace annulus
