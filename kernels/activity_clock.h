// Where the time of a step goes on a device. Activities nest, and time counts for the innermost; what none covers is
// other computing.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace annulus {

enum class Activity : uint8_t { attention, communication };

struct ActivitySeconds {
  double attention = 0;
  double communication = 0;

  void add(Activity activity, double seconds) {
    (activity == Activity::attention ? attention : communication) += seconds;
  }
};

// Used by one thread. A device that queues its work measures on its compute stream.
class ActivityClock {
 public:
  virtual ~ActivityClock() = default;

  virtual void enter(Activity activity) = 0;
  virtual void leave() = 0;  // ends the innermost

  // Since the last call, outside of any activity. Waits until the device has come so far.
  virtual ActivitySeconds take() = 0;
};

// An activity for the length of a scope.
class ActivityScope {
 public:
  ActivityScope(ActivityClock& clock, Activity activity) : clock_(clock) { clock_.enter(activity); }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;
  ~ActivityScope() { clock_.leave(); }

 private:
  ActivityClock& clock_;
};

// For a device that has done its work when a call returns.
class HostActivityClock final : public ActivityClock {
 public:
  void enter(Activity activity) override {
    count();
    nested_.push_back(activity);
  }

  void leave() override {
    count();
    nested_.pop_back();
  }

  ActivitySeconds take() override { return std::exchange(spent_, {}); }

 private:
  using Clock = std::chrono::steady_clock;

  // Gives what has passed since the last change to the innermost activity.
  void count() {
    const Clock::time_point now = Clock::now();
    if (!nested_.empty()) spent_.add(nested_.back(), std::chrono::duration<double>(now - changed_).count());
    changed_ = now;
  }

  std::vector<Activity> nested_;
  Clock::time_point changed_;
  ActivitySeconds spent_;
};

}  // namespace annulus
