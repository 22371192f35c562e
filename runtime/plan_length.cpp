#include "runtime/plan_length.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "kernels/narrow.h"

namespace annulus {
namespace {

// How far a plan is above the budget; 0 or less: it fits. What it does not use does not count.
int64_t excess_of(const RankPlan& plan, const Budget& budget) {
  const auto& [host, disk] = plan.memory.stored;
  int64_t excess = plan.memory.extent - budget.memory;
  if (host > 0) excess = std::max(excess, host - budget.host);
  if (disk > 0) excess = std::max(excess, disk - budget.disk);
  return excess;
}

// Lengths are counted in steps: all lengths of one step are padded to the same, so that they need the same.
class LengthSearch {
 public:
  LengthSearch(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads, const Budget& budget)
      : settings_(settings), model_(model), mesh_(mesh), threads_(threads), budget_(budget) {
    const int64_t ranks = mesh.context_size;
    step_ = ranks == 1 ? 1 : settings.parallel.layout == LayoutKind::zigzag ? 2 * ranks : ranks;
    const int64_t length = std::min(std::max(16 * settings.data.sequence_length, longest_planned),
                                    most_rows / settings.train.micro_batch_size);
    limit_ = length / step_;
    start_ = std::min(ceil_divide(settings.data.sequence_length, step_), limit_);
  }

  LongestSequence run() {
    int64_t steps = search(0, [&](int64_t at) { return excess(at, Rules::last); });
    const auto any = [&](int64_t at) { return excess(at, Rules::all); };
    if (steps < limit_ && any(steps + 1) <= 0) steps = search(steps + 1, any);
    if (steps == limit_) return {.length = steps * step_, .limited = true, .bound = {}};
    return {.length = steps * step_, .limited = false, .bound = bound()};
  }

 private:
  enum class Rules { last, all };  // the last takes least, as a rule

  PreparedRun run_at(int64_t steps) const {
    Settings settings = settings_;
    settings.data.sequence_length = std::max<int64_t>(2, steps * step_);
    PreparedRun run = worst_case(settings, model_);
    run.mesh = mesh_;
    return run;
  }

  // How far the run is above the budget under the rule that comes closest; 0 or less under one that fits.
  int64_t excess(int64_t steps, Rules rules) {
    PreparedRun run = run_at(steps);
    std::vector<MemoryRule> ladder = memory_ladder(run.settings, model_, mesh_);
    if (rules == Rules::last) ladder.erase(ladder.begin(), ladder.end() - 1);
    RankPlan closest;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (auto rule = ladder.rbegin(); rule != ladder.rend() && least > 0; ++rule) {
      run.memory = *rule;
      RankPlan plan = worst_plan(run);
      if (excess_of(plan, budget_) >= least) continue;
      least = excess_of(plan, budget_);
      closest = std::move(plan);
    }
    if (least > 0 && rules == Rules::all && steps < too_many_) {
      too_many_ = steps;
      too_large_ = std::move(closest);
    }
    return least;
  }

  // Of the first rank that exceeds the budget, or of the one that comes closest to it.
  RankPlan worst_plan(PreparedRun& run) const {
    RankPlan worst;
    for (const int rank : kinds_of_ranks(run.mesh)) {
      run.mesh.rank = rank;
      RankPlan plan = plan_rank(run, threads_);
      if (rank == 0 || excess_of(plan, budget_) > excess_of(worst, budget_)) worst = std::move(plan);
      if (!worst.fits(budget_)) break;
    }
    return worst;
  }

  // The largest number of steps, at least `fitting`, for which f is not positive.
  template <class F>
  int64_t search(int64_t fitting, const F& f) const {
    int64_t low = fitting, high = limit_ + 1;  // fits, does not fit
    Known known;
    int slow = 0;  // guesses since the gap was halved
    for (int64_t guess = std::max(start_, low + 1); high - low > 1; guess = next_guess(known, low, high)) {
      const int64_t gap = high - low;
      if (slow >= 2 && known.contains(low) && known.contains(high)) guess = low + gap / 2;
      const int64_t value = known[guess] = f(guess);
      (value <= 0 ? low : high) = guess;
      slow = 2 * (high - low) <= gap ? 0 : slow + 1;
    }
    return low;
  }

  using Known = std::map<int64_t, int64_t>;  // values by steps

  // What a run needs is nearly a straight line in its length: where the line through the two known points next to the
  // crossing meets zero, or twice as far on where there is no such line.
  static int64_t next_guess(const Known& known, int64_t low, int64_t high) {
    const auto between = [&](double at) {
      return static_cast<int64_t>(std::clamp(at, static_cast<double>(low + 1), static_cast<double>(high - 1)));
    };
    auto right = known.lower_bound(high);
    if (right == known.begin() && known.size() > 1) ++right;
    if (right == known.end()) --right;
    const auto left = right == known.begin() ? right : std::prev(right);
    const auto rise = static_cast<double>(right->second - left->second);
    if (rise <= 0) return known.contains(low) ? between(2.0 * static_cast<double>(low)) : high / 2;
    const auto at = static_cast<double>(left->first), value = static_cast<double>(left->second);
    return between(std::floor(at - value / rise * static_cast<double>(right->first - left->first)));
  }

  // What the shortest run that does not fit asks too much of, under the rule that comes closest.
  std::string bound() const {
    const auto& [host, disk] = too_large_.memory.stored;
    if (too_large_.memory.extent <= budget_.memory) return host > budget_.host ? "host memory" : "disk";
    auto bytes = too_large_.memory.bytes_at_peak();
    if (too_many_ > 1) {  // the purpose with most of what half as long a run would not need
      PreparedRun half = run_at(too_many_ / 2);
      half.memory = too_large_.rule;
      const auto less = plan_rank(half, threads_).memory.bytes_at_peak();
      std::ranges::transform(bytes, less, bytes.begin(), std::minus());
    }
    return name_of(static_cast<Purpose>(std::ranges::max_element(bytes) - bytes.begin()));
  }

  const Settings& settings_;
  const ModelConfig& model_;
  Mesh mesh_;
  int threads_;
  Budget budget_;
  int64_t step_, limit_, start_;
  int64_t too_many_ = std::numeric_limits<int64_t>::max();  // the least steps that fit under no rule
  RankPlan too_large_;                                      // and what they would need
};

}  // namespace

LongestSequence longest_sequence(const Settings& settings, const ModelConfig& model, const Mesh& mesh, int threads,
                                 const Budget& budget) {
  return LengthSearch(settings, model, mesh, threads, budget).run();
}

}  // namespace annulus
