#include <nlohmann/json.hpp>

#include "runtime/plan_report.h"

namespace annulus {
namespace {

using Json = nlohmann::ordered_json;

Json step_of(const StepCost& step) {
  return {{"attention_flops", step.operations.attention},
          {"matmul_flops", step.operations.matmul},
          {"ring_bytes", step.ring_bytes},
          {"parameter_bytes", step.parameter_bytes},
          {"host_traffic_bytes", step.host_traffic_bytes},
          {"disk_traffic_bytes", step.disk_traffic_bytes}};
}

Json option_of(const PlanOption& option, const PlanReport& report) {
  const RankPlan& worst = option.plan.worst;
  Json json = {{"settings", option.settings},
               {"chosen", &option == &report.options[report.chosen]},
               {"allowed", option.allowed},
               {"fits", worst.fits(report.budget)},
               {"peak_bytes", worst.memory.extent},
               {"saved_bytes", report.plan().worst.memory.extent - worst.memory.extent},
               {"host_bytes", worst.memory.stored.host},
               {"disk_bytes", worst.memory.stored.disk}};
  json.update(step_of(option.plan.step));
  return json;
}

Json bytes_by_purpose(const MemoryPlan& memory) {
  const auto bytes = memory.bytes_at_peak();
  Json json;
  for (int i = 0; i < purpose_count; ++i) json[name_of(static_cast<Purpose>(i))] = bytes[static_cast<size_t>(i)];
  return json;
}

Json memory_of(const PlanReport& report) {
  const RankPlan& plan = report.plan().worst;
  return {{"peak_bytes", plan.memory.extent},
          {"live_bytes", plan.memory.peak_bytes},
          {"gap_bytes", plan.memory.extent - plan.memory.peak_bytes},
          {"outside_bytes", report.outside.bytes},
          {"outside", report.outside.what},
          {"host_bytes", plan.memory.stored.host},
          {"disk_bytes", plan.memory.stored.disk},
          {"worst_rank", plan.rank},
          {"ranks", report.ranks},
          {"memory_budget", report.budget.memory},
          {"host_budget", report.budget.host},
          {"disk_budget", report.budget.disk},
          {"fits", report.fits()},
          {"memory", plan.rule.to_string()},
          {"bytes_at_peak", bytes_by_purpose(plan.memory)},
          {"peak_phase", name_of(plan.peak.phase)},
          {"peak_purpose", name_of(plan.peak.purpose)},
          {"peak_allocation_bytes", plan.peak.bytes}};
}

}  // namespace

std::string as_json(const PlanReport& report) {
  Json json = memory_of(report);
  json["step_of"] = report.data ? "data.train" : "worst case";
  json.update(step_of(report.data ? report.data->most : report.plan().step));
  if (report.data) json["all_ranks"] = step_of(report.data->total);
  json["longest_sequence_length"] = report.longest.length;
  json["longest_bounded_by"] = report.longest.bound;
  json["options"] = Json::array();
  for (const PlanOption& option : report.options) json["options"].push_back(option_of(option, report));
  return json.dump(2) + "\n";
}

}  // namespace annulus
