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

// What has been placed, by stretches of time and in each by offset: of a hundred thousand allocations only few are live
// together with a given one.
class Placed {
 public:
  explicit Placed(int64_t end_of_time) : end_of_time_(end_of_time), stretches_(stretch_of(end_of_time) + 1) {}

  // Where nothing is in the way.
  [[nodiscard]] int64_t lowest_offset(const PlannedAllocation& allocation) const {
    int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = stretch_of(allocation.begin); i <= last_stretch(allocation); ++i) {
        const int64_t before = offset;
        offset = lowest_offset_in(stretches_[i], allocation, offset);
        moved = moved || offset > before;
      }
      if (stretch_of(allocation.begin) == last_stretch(allocation)) break;
    }
    return offset;
  }

  void add(PlannedAllocation* allocation) {
    for (size_t i = stretch_of(allocation->begin); i <= last_stretch(*allocation); ++i) {
      const auto where = std::ranges::upper_bound(stretches_[i], allocation->offset, {}, &PlannedAllocation::offset);
      stretches_[i].insert(where, allocation);
    }
  }

 private:
  static size_t stretch_of(int64_t time) { return static_cast<size_t>(time / 512); }
  [[nodiscard]] size_t last_stretch(const PlannedAllocation& allocation) const {
    return stretch_of(std::min(allocation.end, end_of_time_));
  }

  // Not below `offset`; every offset that is passed over is in the way of something.
  static int64_t lowest_offset_in(const Allocations& placed, const PlannedAllocation& allocation, int64_t offset) {
    for (const PlannedAllocation* other : placed) {
      if (other->offset >= offset + allocation.bytes) break;
      if (live_together(allocation, *other)) offset = std::max(offset, other->offset + other->bytes);
    }
    return offset;
  }

  int64_t end_of_time_;
  std::vector<Allocations> stretches_;
};

// Each in turn at the lowest offset where nothing placed before is in its way; returns the extent.
int64_t place_in_order(const Allocations& order) {
  int64_t end_of_time = 0, extent = 0;
  for (const PlannedAllocation* allocation : order) end_of_time = std::max(end_of_time, allocation->begin);
  Placed placed(end_of_time + 1);
  for (PlannedAllocation* allocation : order) {
    allocation->offset = placed.lowest_offset(*allocation);
    placed.add(allocation);
    extent = std::max(extent, allocation->offset + allocation->bytes);
  }
  return extent;
}

// What is placed earlier the larger it is, in the ways that are tried one after the other: long-lived things, large
// things, their product, and what is live at the peak.
using Importance = std::function<std::pair<double, double>(const PlannedAllocation*)>;
std::array<Importance, 4> importances(int64_t peak_time) {
  const auto life = [](const PlannedAllocation* a) { return static_cast<double>(a->end - a->begin); };
  const auto size = [](const PlannedAllocation* a) { return static_cast<double>(a->bytes); };
  const auto at_peak = [=](const PlannedAllocation* a) { return a->begin <= peak_time && a->end > peak_time; };
  return {[=](const auto* a) { return std::pair(life(a), size(a)); },
          [=](const auto* a) { return std::pair(size(a), life(a)); },
          [=](const auto* a) { return std::pair(life(a) * size(a), size(a)); },
          [=](const auto* a) { return std::pair(at_peak(a) ? life(a) : 0, size(a)); }};
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
  Allocations best;
  const auto attempt = [&] {
    const int64_t extent = place_in_order(order);
    if (!best.empty() && extent >= plan.extent) return;
    plan.extent = extent;
    best = order;
  };
  const auto gaps = [&] { return plan.extent - plan.peak_bytes; };

  for (const auto& importance : importances(plan.peak_time)) {
    std::ranges::stable_sort(order, std::greater(), importance);
    attempt();
    if (gaps() == 0) return;
  }
  order = best;
  place_in_order(order);
  const size_t moves = std::min<size_t>(400, 400'000 / order.size());    // no more than a moment's work
  for (size_t i = 0; i < moves && gaps() > plan.peak_bytes / 50; ++i) {  // what reaches highest goes first
    const auto highest = std::ranges::max_element(order, {}, [](const auto* a) { return a->offset + a->bytes; });
    std::rotate(order.begin(), highest, highest + 1);
    attempt();
  }
  place_in_order(best);
}

}  // namespace annulus
