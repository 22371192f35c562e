// Work that will be done, and the order CUDA promises about it: what was before complete() is before what follows
// wait().
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tests/hosted_cuda/double/order.h"

namespace annulus::hosted {

class Completion {
 public:
  void complete() {
    {
      const Shown shown;
      release(&promise_);
    }
    const std::scoped_lock lock(mutex_);
    done_ = true;
    time_ = std::chrono::steady_clock::now();
    changed_.notify_all();
  }

  void wait() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return done_; });
    }
    const Shown shown;
    acquire(&promise_);
  }

  // Orders as wait() does where it says yes.
  bool is_done() {
    {
      const std::scoped_lock lock(mutex_);
      if (!done_) return false;
    }
    const Shown shown;
    acquire(&promise_);
    return true;
  }

  std::chrono::steady_clock::time_point time() {
    const std::scoped_lock lock(mutex_);
    return time_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::chrono::steady_clock::time_point time_;
  char promise_ = 0;
};

}  // namespace annulus::hosted
