#include "runtime/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/run.h"

namespace annulus {
namespace {

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.3f} GiB", static_cast<double>(bytes) / 0x1p30);
}

double teraflops(double operations) {
  return operations * 1e-12;
}

}  // namespace

PlanReport plan_run(const Settings& settings, int ranks, int threads, int64_t budget) {
  const ModelConfig model = ModelConfig::read(settings.model.path).with_window(settings.attention.sliding_window);
  check_against_model(settings, model);
  const Mesh mesh = resolve_mesh(settings.parallel, 0, ranks);
  PlanReport report{
      .ranks = ranks, .budget = budget, .worst = {}, .ladder = plan_ladder(settings, model, mesh, threads)};
  const auto fitting = std::ranges::find_if(report.ladder, [&](const RungPlan& r) { return r.peak_bytes <= budget; });
  const MemoryRule& rule = fitting == report.ladder.end() ? report.ladder.back().rule : fitting->rule;
  report.worst = plan_rank(settings, model, mesh, rule, threads);
  return report;
}

std::string as_table(const PlanReport& report) {
  const RankPlan& plan = report.worst;
  const auto bytes = plan.memory.bytes_at_peak();
  std::string text = fmt::format("{:<16}{:>20}{:>14}\n", "at the peak", "bytes", "");
  for (int i = 0; i < purpose_count; ++i) {
    const int64_t amount = bytes[static_cast<size_t>(i)];
    text += fmt::format("{:<16}{:>20}{:>14}\n", name_of(static_cast<Purpose>(i)), amount, gibibytes(amount));
  }
  text += fmt::format("{:<16}{:>20}{:>14}\n", "between buffers", plan.memory.extent - plan.memory.peak_bytes,
                      gibibytes(plan.memory.extent - plan.memory.peak_bytes));
  text += fmt::format("{:<16}{:>20}{:>14}   on rank 0 of {}\n", "peak", plan.memory.extent,
                      gibibytes(plan.memory.extent), report.ranks);
  text += fmt::format("{:<16}{:>20}{:>14}   {}\n", "budget", report.budget, gibibytes(report.budget),
                      report.fits() ? "fits" : "DOES NOT FIT");
  text += fmt::format("\na step and rank: {:.3f} TFLOP in attention, {:.3f} TFLOP in other products\n",
                      teraflops(plan.operations.attention), teraflops(plan.operations.matmul));
  text += fmt::format("sent a step and rank: {} around the ring, {} of weights and gradients\n",
                      gibibytes(plan.ring_bytes), gibibytes(plan.parameter_bytes));
  text += "\nwhat may be chosen, cheapest in computation first:\n";
  for (const RungPlan& rung : report.ladder) {
    text +=
        fmt::format("{} {:>14} {:>10.3f} TFLOP  {}\n", rung.rule == plan.rule ? "->" : "  ", gibibytes(rung.peak_bytes),
                    teraflops(rung.operations.attention + rung.operations.matmul), rung.rule.to_string());
  }
  return text;
}

std::string as_json(const PlanReport& report) {
  const RankPlan& plan = report.worst;
  const auto bytes = plan.memory.bytes_at_peak();
  nlohmann::ordered_json at_peak;
  for (int i = 0; i < purpose_count; ++i) at_peak[name_of(static_cast<Purpose>(i))] = bytes[static_cast<size_t>(i)];
  const nlohmann::ordered_json json = {{"peak_bytes", plan.memory.extent},
                                       {"live_bytes", plan.memory.peak_bytes},
                                       {"worst_rank", 0},
                                       {"ranks", report.ranks},
                                       {"memory_budget", report.budget},
                                       {"fits", report.fits()},
                                       {"memory", plan.rule.to_string()},
                                       {"bytes_at_peak", at_peak},
                                       {"attention_flops", plan.operations.attention},
                                       {"matmul_flops", plan.operations.matmul},
                                       {"ring_bytes", plan.ring_bytes},
                                       {"parameter_bytes", plan.parameter_bytes}};
  return json.dump(2) + "\n";
}

}  // namespace annulus
