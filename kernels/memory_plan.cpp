#include "kernels/memory_plan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/narrow.h"

namespace annulus {
namespace {

using Allocations = std::vector<PlannedAllocation*>;

Allocations all_of(MemoryPlan& plan) {
  Allocations all;
  for (auto& section : plan.sections) {
    for (PlannedAllocation& allocation : section) all.push_back(&allocation);
  }
  all.push_back(&plan.workspace);
  return all;
}

bool live_together(const PlannedAllocation& a, const PlannedAllocation& b) {
  return a.begin < b.end && b.begin < a.end;
}

// Each in turn at the lowest offset where nothing placed before is in its way; returns the extent.
int64_t place_in_order(const Allocations& order) {
  Allocations placed;  // by offset
  int64_t extent = 0;
  for (PlannedAllocation* allocation : order) {
    int64_t offset = 0;
    for (const PlannedAllocation* other : placed) {
      if (other->offset >= offset + allocation->bytes) break;
      if (live_together(*allocation, *other)) offset = std::max(offset, other->offset + other->bytes);
    }
    allocation->offset = offset;
    extent = std::max(extent, offset + allocation->bytes);
    const auto where = std::upper_bound(placed.begin(), placed.end(), offset,
                                        [](int64_t value, const PlannedAllocation* p) { return value < p->offset; });
    placed.insert(where, allocation);
  }
  return extent;
}

void find_peak(MemoryPlan& plan, const Allocations& all) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // time, bytes
  for (const PlannedAllocation* allocation : all) {
    changes.emplace_back(allocation->begin, allocation->bytes);
    changes.emplace_back(allocation->end, -allocation->bytes);
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0;
  for (const auto& [time, bytes] : changes) {
    live += bytes;
    if (live > plan.peak_bytes) {
      plan.peak_bytes = live;
      plan.peak_time = time;
    }
  }
}

}  // namespace

int64_t planned_bytes(int64_t bytes, bool red_zone) {
  return round_up(bytes, memory_alignment) + (red_zone ? memory_alignment : 0);
}

std::array<int64_t, purpose_count> MemoryPlan::bytes_at_peak() const {
  std::array<int64_t, purpose_count> bytes{};
  bytes[static_cast<size_t>(Purpose::workspace)] = workspace.bytes;
  for (const auto& section : sections) {
    for (const PlannedAllocation& allocation : section) {
      if (allocation.begin > peak_time || allocation.end <= peak_time) continue;
      bytes[static_cast<size_t>(allocation.purpose)] += allocation.bytes;
    }
  }
  return bytes;
}

void place(MemoryPlan& plan) {
  Allocations order = all_of(plan);
  find_peak(plan, order);
  const auto lifetime = [](const PlannedAllocation* a) { return a->end - a->begin; };
  Allocations best;
  const auto attempt = [&] {
    const int64_t extent = place_in_order(order);
    if (!best.empty() && extent >= plan.extent) return;
    plan.extent = extent;
    best = order;
  };
  const auto gaps = [&] { return plan.extent - plan.peak_bytes; };

  std::ranges::stable_sort(order, std::greater(), [&](const auto* a) { return std::pair(lifetime(a), a->bytes); });
  attempt();
  if (gaps() > 0) {
    std::ranges::stable_sort(order, std::greater(), [&](const auto* a) { return std::pair(a->bytes, lifetime(a)); });
    attempt();
  }
  // What reaches highest goes first next time, while more than a hundredth lies idle.
  for (int i = 0; i < 32 && gaps() > plan.peak_bytes / 100; ++i) {
    const auto highest = std::ranges::max_element(order, {}, [](const auto* a) { return a->offset + a->bytes; });
    std::rotate(order.begin(), highest, highest + 1);
    attempt();
  }
  place_in_order(best);
}

}  // namespace annulus
