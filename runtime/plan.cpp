#include "runtime/plan.h"

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

}  // namespace

RankPlan plan_rank(const Settings& settings, const ModelConfig& model, const Mesh& mesh,
                   std::unique_ptr<WorkspaceSizes> workspace) {
  PreparedRun run{.settings = settings,
                  .model = model,
                  .mesh = mesh,
                  .sequences = std::make_unique<SequenceSet>(std::make_unique<WorstCase>(settings.data.sequence_length),
                                                             settings.data)};
  PlanDevice device(std::move(workspace), settings.debug.poison);
  PlanTransport transport(mesh.rank, mesh.size());
  Listener nobody;
  RankPlan plan;
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

}  // namespace annulus
