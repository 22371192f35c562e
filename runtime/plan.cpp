#include "runtime/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/plan_transport.h"
#include "runtime/run.h"
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

// Ranks that allocate alike: rank 0 also receives what is saved.
std::vector<Mesh> rank_shapes(Mesh mesh) {
  std::vector<Mesh> shapes;
  for (mesh.rank = 0; mesh.rank < std::min(2, mesh.size()); ++mesh.rank) shapes.push_back(mesh);
  return shapes;
}

[[noreturn]] void refuse(const RankPlan& plan, int64_t budget) {
  const auto bytes = plan.memory.bytes_at_peak();
  const auto largest = std::ranges::max_element(bytes);
  throw MemoryError(fmt::format(
      "this run needs {} bytes on a rank, but runtime.memory_budget is {}, and no setting of memory.* that may be "
      "chosen "
      "makes it fit; the largest part is {} with {} bytes. More ranks, a shorter data.sequence_length or a smaller "
      "train.micro_batch_size help; `annulus plan` shows by how much",
      plan.memory.extent, budget, name_of(static_cast<Purpose>(largest - bytes.begin())), *largest));
}

}  // namespace

RankPlan plan_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh, const MemoryRule& rule,
                   int threads) {
  const int64_t length = settings.data.sequence_length;
  PreparedRun run{.settings = settings,
                  .model = model,
                  .mesh = mesh,
                  .memory = rule,
                  .sequences = std::make_unique<SequenceSet>(std::make_unique<WorstCase>(length), settings.data)};
  PlanDevice device(cpu_workspace_sizes(threads), settings.debug.poison);
  PlanTransport transport(mesh.rank, mesh.size());
  Listener nobody;
  RankPlan plan{.rule = rule, .memory = {}, .operations = {}};
  {
    Trainer trainer(run, device, transport, nobody);
    trainer.step(1);
    plan.operations = device.operations();
    plan.ring_bytes = transport.sent_bytes(Channel::keys) + transport.sent_bytes(Channel::key_gradients);
    plan.parameter_bytes = transport.sent_bytes(Channel::parameters) + transport.sent_bytes(Channel::gradients);
    trainer.rehearse_save();
    plan.memory = device.recording().recorded();
  }
  place(plan.memory);
  return plan;
}

std::vector<RungPlan> plan_ladder(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads) {
  std::vector<RungPlan> plans;
  for (const MemoryRule& rule : memory_ladder(settings, model, mesh)) {
    RungPlan rung{.rule = rule, .operations = {}};
    for (const Mesh& shape : rank_shapes(mesh)) {
      const RankPlan plan = plan_rank(settings, model, shape, rule, threads);
      rung.peak_bytes = std::max(rung.peak_bytes, plan.memory.extent);
      rung.operations = plan.operations;
    }
    plans.push_back(rung);
  }
  return plans;
}

RankPlan fit_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads, int64_t budget) {
  RankPlan last;
  for (const MemoryRule& rule : memory_ladder(settings, model, mesh)) {
    int64_t worst = 0;
    for (const Mesh& shape : rank_shapes(mesh)) {
      last = plan_rank(settings, model, shape, rule, threads);
      worst = std::max(worst, last.memory.extent);
    }
    if (worst <= budget) return plan_rank(settings, model, mesh, rule, threads);
  }
  refuse(last, budget);
}

}  // namespace annulus
