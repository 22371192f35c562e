#include "runtime/plan_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/sequence_layout.h"

namespace annulus {
namespace {

// The ladder, and what it would be if memory.* were left to it.
std::vector<PlanOption> memory_options(PreparedRun& run, int threads) {
  const std::vector<MemoryRule> allowed = memory_ladder(run.settings, run.model, run.mesh);
  Settings free = run.settings;
  free.memory = {};
  free.memory.directory = run.settings.memory.directory;
  std::vector<MemoryRule> rules = allowed;
  for (const MemoryRule& rule : memory_ladder(free, run.model, run.mesh)) {
    if (std::ranges::find(rules, rule) == rules.end()) rules.push_back(rule);
  }
  std::vector<PlanOption> options;
  for (const MemoryRule& rule : rules) {
    run.memory = rule;
    options.push_back(
        {.settings = rule.to_string(), .allowed = options.size() < allowed.size(), .plan = plan_rung(run, threads)});
  }
  return options;
}

size_t choose(const std::vector<PlanOption>& options, const Budget& budget) {
  size_t chosen = 0;
  for (size_t i = 0; i < options.size() && options[i].allowed; ++i) {
    chosen = i;
    if (options[i].plan.worst.fits(budget)) break;
  }
  return chosen;
}

PackedStep packed_step(PreparedRun& run, int threads) {
  PackedStep step;
  for (run.mesh.rank = 0; run.mesh.rank < run.mesh.size(); ++run.mesh.rank) {
    const StepCost cost = cost_of_step(run, threads);
    step.total.add(cost);
    step.most.raise_to(cost);
    if (run.mesh.rank > 0 && cost.operations.attention <= step.busiest.operations.attention) continue;
    step.busiest = cost;
    step.busiest_rank = run.mesh.rank;
  }
  return step;
}

int64_t local_rows(const PreparedRun& run) {
  return SequenceLayout(run.settings.parallel.layout, run.mesh.context_size, run.settings.train.micro_batch_size,
                        run.settings.data.sequence_length)
      .local_rows();
}

// A sequence on twice as many ranks, and else the same: where a tile was all rows of a rank, it still is.
PlanOption more_ranks(PreparedRun& run, const MemoryRule& rule, int threads, bool data) {
  const int64_t rows = local_rows(run);
  run.mesh = {.data_size = run.mesh.data_size, .context_size = 2 * run.mesh.context_size};
  run.memory = rule;
  for (int64_t* const tile : {&run.memory.mlp_rows, &run.memory.logits_rows}) {
    *tile = *tile == rows ? local_rows(run) : std::min(*tile, local_rows(run));
  }
  PlanOption option{
      .settings = fmt::format("--ranks {}", run.mesh.size()), .allowed = false, .plan = plan_rung(run, threads)};
  if (run.settings.parallel.context_parallel_size != 0) {
    option.settings += fmt::format(" parallel.context_parallel_size={}", run.mesh.context_size);
  }
  option.settings += fmt::format(" {}", run.memory.to_string());
  if (data) option.plan.step = packed_step(run, threads).busiest;
  return option;
}

// Work and traffic as data.train packs its first step: of the rule that was chosen on every rank; the options are
// compared on the busiest of these.
void use_data(PlanReport& report, PreparedRun& run, int threads) {
  run.sequences =
      std::make_unique<SequenceSet>(open_documents(run.settings.data.train, run.model.vocabulary), run.settings.data);
  run.memory = report.plan().rule();
  report.data = packed_step(run, threads);
  run.mesh.rank = report.data->busiest_rank;
  for (PlanOption& option : report.options) {
    run.memory = option.plan.rule();
    option.plan.step = cost_of_step(run, threads);
  }
}

}  // namespace

PlanReport plan_run(const PlanRequest& request) {
  const Settings& settings = request.settings;
  const ModelConfig model = ModelConfig::read(settings.model.path).with_window(settings.attention.sliding_window);
  check_against_model(settings, model);
  PreparedRun run = worst_case(settings, model);
  run.mesh = resolve_mesh(settings.parallel, 0, request.ranks);
  PlanReport report{.ranks = request.ranks,
                    .budget = request.budget,
                    .options = memory_options(run, request.threads),
                    .longest = longest_sequence(settings, model, run.mesh, request.threads, request.budget),
                    .outside = outside_of(run),
                    .data = {}};
  report.chosen = choose(report.options, request.budget);
  if (request.data) use_data(report, run, request.threads);
  report.options.push_back(more_ranks(run, MemoryRule(report.plan().rule()), request.threads, request.data));
  return report;
}

}  // namespace annulus
