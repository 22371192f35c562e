// Activities measured by events on a stream: when the GPU came to each change, and not when it was queued.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "kernels/activity_clock.h"
#include "kernels/cuda/stream.h"

namespace annulus::cuda {

class CudaActivityClock final : public ActivityClock {
 public:
  explicit CudaActivityClock(cudaStream_t stream) : stream_(stream) {}

  void enter(Activity activity) override;
  void leave() override;
  ActivitySeconds take() override;

 private:
  // From this event to the next change.
  struct Change {
    EventHandle event;
    std::optional<Activity> activity;
  };

  void change();
  void count_first();  // what lies between the first two changes, both of which the GPU has reached

  cudaStream_t stream_;
  std::vector<Activity> nested_;
  std::deque<Change> changes_;      // in their order, not yet counted
  std::vector<EventHandle> spare_;  // to be recorded again
  ActivitySeconds spent_;
};

}  // namespace annulus::cuda
