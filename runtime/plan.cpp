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

// The phases of a run by when they began, in the time of what records its allocations.
class PhaseLog final : public Listener {
 public:
  explicit PhaseLog(const RecordingMemory& memory) : memory_(memory) {}

  void entered(Phase phase, int64_t /*step*/) override { begins_.emplace_back(memory_.time(), phase); }

  [[nodiscard]] Phase at(int64_t time) const {
    const auto next =
        std::ranges::upper_bound(begins_, time, {}, [](const std::pair<int64_t, Phase>& begin) { return begin.first; });
    return next == begins_.begin() ? Phase::load : std::prev(next)->second;
  }

 private:
  const RecordingMemory& memory_;
  std::vector<std::pair<int64_t, Phase>> begins_;
};

std::unique_ptr<WorkspaceSizes> workspace_sizes(DeviceKind device, int threads) {
  return device == DeviceKind::cuda ? cuda_workspace_sizes() : cpu_workspace_sizes(threads);
}

PeakMoment peak_of(const MemoryPlan& plan, const PhaseLog& phases) {
  PeakMoment peak{.phase = phases.at(plan.peak_time)};
  for (const auto& section : plan.sections) {
    for (const PlannedAllocation& allocation : section) {
      if (allocation.begin != plan.peak_time) continue;
      peak.purpose = allocation.purpose;
      peak.bytes = allocation.bytes;
    }
  }
  return peak;
}

StepCost cost_so_far(const PlanDevice& device, const PlanTransport& transport) {
  return {.operations = device.operations(),
          .ring_bytes = transport.sent_bytes(Channel::keys) + transport.sent_bytes(Channel::key_gradients),
          .parameter_bytes = transport.sent_bytes(Channel::parameters) + transport.sent_bytes(Channel::gradients),
          .host_traffic_bytes = device.host().moved_bytes(),
          .disk_traffic_bytes = device.disk().moved_bytes()};
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
  PlanDevice device(workspace_sizes(run.settings.runtime.device, threads), run.settings.debug.poison);
  PlanTransport transport(run.mesh.rank, run.mesh.size());
  PhaseLog phases(device.recording());
  RankPlan plan{.rank = run.mesh.rank, .rule = run.memory, .memory = {}, .peak = {}, .step = {}};
  {
    Trainer trainer(run, device, transport, phases);
    trainer.rehearse_set_weights();
    const int64_t loaded_from_host = device.host().moved_bytes(), loaded_from_disk = device.disk().moved_bytes();
    trainer.step(1);
    plan.step = cost_so_far(device, transport);
    plan.step.host_traffic_bytes -= loaded_from_host;
    plan.step.disk_traffic_bytes -= loaded_from_disk;
    phases.entered(Phase::save, 1);
    trainer.rehearse_save();
    plan.memory = device.recording().recorded();
    plan.memory.stored = {.host = device.host().reserved_bytes(), .disk = device.disk().reserved_bytes()};
  }
  place(plan.memory);
  plan.peak = peak_of(plan.memory, phases);
  return plan;
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

void StepCost::add(const StepCost& other) {
  join(other, [](auto& own, auto theirs) { own += theirs; });
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
