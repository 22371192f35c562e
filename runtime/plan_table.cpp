#include <fmt/format.h>

#include "runtime/plan_report.h"

namespace annulus {
namespace {

double gibibytes(int64_t bytes) {
  return static_cast<double>(bytes) / 0x1p30;
}

double teraflops(double operations) {
  return operations * 1e-12;
}

std::string row(const char* name, int64_t bytes, const std::string& remark = "") {
  return fmt::format("{:<14}{:>22}{:>14.3f} GiB{}{}\n", name, bytes, gibibytes(bytes), remark.empty() ? "" : "  ",
                     remark);
}

std::string row(const char* name, double operations) {
  return fmt::format("{:<14}{:>36.3f} TFLOP\n", name, teraflops(operations));
}

std::string memory_table(const PlanReport& report) {
  const RankPlan& plan = report.plan().worst;
  const MemoryPlan& memory = plan.memory;
  const auto bytes = memory.bytes_at_peak();
  const auto against = [](int64_t taken, int64_t budget) {
    return fmt::format("{} {:.3f} GiB", taken <= budget ? "fits" : "DOES NOT FIT", gibibytes(budget));
  };
  std::string text = fmt::format("memory of rank {} of {}, which needs most, at its peak\n", plan.rank, report.ranks);
  for (int i = 0; i < purpose_count; ++i) text += row(name_of(static_cast<Purpose>(i)), bytes[static_cast<size_t>(i)]);
  text += row("gaps", memory.extent - memory.peak_bytes);
  text += row("peak", memory.extent, against(memory.extent, report.budget.memory));
  text += row("host", memory.stored.host, against(memory.stored.host, report.budget.host));
  text += row("disk", memory.stored.disk, against(memory.stored.disk, report.budget.disk));
  text += row("outside", report.outside.bytes, report.outside.what);
  return text + fmt::format("the peak comes in {}, when {} bytes of {} are taken\n", name_of(plan.peak.phase),
                            plan.peak.bytes, name_of(plan.peak.purpose));
}

std::string step_table(const StepCost& step, const std::string& whose) {
  return fmt::format("\na step, {}\n", whose) + row("attention", step.operations.attention) +
         row("other", step.operations.matmul) + row("ring", step.ring_bytes, "sent: keys, values, their gradients") +
         row("ZeRO", step.parameter_bytes, "sent: weights and gradients") +
         row("host", step.host_traffic_bytes, "moved, both ways") +
         row("disk", step.disk_traffic_bytes, "moved, both ways");
}

std::string longest(const LongestSequence& longest) {
  if (longest.length == 0) return fmt::format("\nno data.sequence_length fits, for {}\n", longest.bound);
  return fmt::format("\nthe longest data.sequence_length that fits: {}, {}\n", longest.length,
                     longest.limited ? "the longest that was tried" : "bounded by " + longest.bound);
}

std::string option_row(const PlanOption& option, const PlanReport& report) {
  const StepCost &step = option.plan.step, &now = report.plan().step;
  const auto operations = [](const StepCost& cost) { return cost.operations.attention + cost.operations.matmul; };
  const auto sent = [](const StepCost& cost) { return cost.ring_bytes + cost.parameter_bytes; };
  const auto moved = [](const StepCost& cost) { return cost.host_traffic_bytes + cost.disk_traffic_bytes; };
  const RankPlan& worst = option.plan.worst;
  const char* const mark = &option == &report.options[report.chosen] ? "->" : worst.fits(report.budget) ? "ok" : "";
  return fmt::format("{:<2}{:>11.3f}{:>+11.3f}{:>+13.3f}{:>+11.3f}{:>+11.3f}{:>11.3f}  {}\n", mark,
                     gibibytes(worst.memory.extent), gibibytes(worst.memory.extent - report.plan().worst.memory.extent),
                     teraflops(operations(step) - operations(now)), gibibytes(sent(step) - sent(now)),
                     gibibytes(moved(step) - moved(now)),
                     gibibytes(worst.memory.stored.host + worst.memory.stored.disk), option.settings);
}

std::string options_table(const PlanReport& report) {
  std::string text =
      fmt::format("\n{:>13}{:>11}{:>13}{:>11}{:>11}{:>11}  {}\n", "peak GiB", "+GiB", "+TFLOP", "+sent GiB",
                  "+moved GiB", "stored GiB", "what could be chosen, against -> (ok: fits)");
  for (const PlanOption& option : report.options) {
    if (option.allowed) text += option_row(option, report);
  }
  text += "  with a changed configuration or more ranks, each with the same budget:\n";
  for (const PlanOption& option : report.options) {
    if (!option.allowed) text += option_row(option, report);
  }
  return text;
}

}  // namespace

std::string as_table(const PlanReport& report) {
  std::string text = memory_table(report);
  if (report.data) {
    text += step_table(report.data->total, "all ranks together, data.train as it is packed in the first");
    text += step_table(report.data->most, "the most that a rank has of each");
  } else {
    text += step_table(report.plan().step, "the most that a rank has of each, every sequence being one document");
  }
  return text + longest(report.longest) + options_table(report);
}

}  // namespace annulus
