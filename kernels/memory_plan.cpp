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
      size_t looked_at = 0;
      for (const Life& life : allocation.lives) {
        for (size_t i = stretch_of(life.begin); i <= last_stretch(life); ++i, ++looked_at) {
          const int64_t before = offset;
          offset = lowest_offset_in(stretches_[i], life, allocation.bytes, offset);
          moved = moved || offset > before;
        }
      }
      if (looked_at == 1) break;
    }
    return offset;
  }

  void add(const PlannedAllocation& allocation) {
    const int64_t begin = allocation.offset;
    for (const Life& life : allocation.lives) {
      for (size_t i = stretch_of(life.begin); i <= last_stretch(life); ++i) {
        const auto where = std::ranges::upper_bound(stretches_[i], begin, {}, &Occupied::begin);
        stretches_[i].insert(where, {.begin = begin, .end = begin + allocation.bytes, .life = life});
      }
    }
  }

 private:
  struct Occupied {
    int64_t begin, end;  // bytes from the arena's start
    Life life;
  };

  static size_t stretch_of(int64_t time) { return static_cast<size_t>(time / 512); }
  [[nodiscard]] size_t last_stretch(const Life& life) const { return stretch_of(std::min(life.end, end_of_time_)); }

  // Not below `offset`; every offset that is passed over is in the way of something.
  static int64_t lowest_offset_in(const std::vector<Occupied>& stretch, const Life& life, int64_t bytes,
                                  int64_t offset) {
    for (const Occupied& other : stretch) {
      if (other.begin >= offset + bytes) break;
      if (life.begin < other.life.end && other.life.begin < life.end) offset = std::max(offset, other.end);
    }
    return offset;
  }

  int64_t end_of_time_;
  std::vector<std::vector<Occupied>> stretches_;
};

// Each in turn at the lowest offset where nothing placed before is in its way; returns the extent.
int64_t place_in_order(const Allocations& order) {
  int64_t end_of_time = 0, extent = 0;
  for (const PlannedAllocation* allocation : order) {
    for (const Life& life : allocation->lives) end_of_time = std::max(end_of_time, life.begin);
  }
  Placed placed(end_of_time + 1);
  for (PlannedAllocation* allocation : order) {
    allocation->offset = placed.lowest_offset(*allocation);
    placed.add(*allocation);
    extent = std::max(extent, allocation->offset + allocation->bytes);
  }
  return extent;
}

// What is placed earlier the larger it is, in the ways that are tried one after the other: long-lived things, large
// things, their product, and what is live at the peak.
using Importance = std::function<std::pair<double, double>(const PlannedAllocation*)>;
std::array<Importance, 4> importances(int64_t peak_time) {
  const auto life = [](const PlannedAllocation* a) {
    double sum = 0;
    for (const Life& one : a->lives) sum += static_cast<double>(one.end - one.begin);
    return sum;
  };
  const auto size = [](const PlannedAllocation* a) { return static_cast<double>(a->bytes); };
  return {[=](const auto* a) { return std::pair(life(a), size(a)); },
          [=](const auto* a) { return std::pair(size(a), life(a)); },
          [=](const auto* a) { return std::pair(life(a) * size(a), size(a)); },
          [=](const auto* a) { return std::pair(a->lives_at(peak_time) ? life(a) : 0, size(a)); }};
}

void find_peak(MemoryPlan& plan, const Allocations& all) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // time, bytes
  for (const PlannedAllocation* allocation : all) {
    for (const Life& life : allocation->lives) {
      changes.emplace_back(life.begin, allocation->bytes);
      changes.emplace_back(life.end, -allocation->bytes);
    }
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

bool PlannedAllocation::lives_at(int64_t time) const {
  return std::ranges::any_of(lives, [&](const Life& life) { return life.begin <= time && time < life.end; });
}

std::array<int64_t, purpose_count> MemoryPlan::bytes_at_peak() const {
  std::array<int64_t, purpose_count> bytes{};
  bytes[static_cast<size_t>(Purpose::workspace)] = workspace.bytes;
  for (const auto& section : sections) {
    for (const PlannedAllocation& allocation : section) {
      if (allocation.lives_at(peak_time)) bytes[static_cast<size_t>(allocation.purpose)] += allocation.bytes;
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
