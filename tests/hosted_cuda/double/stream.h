// A stream: a queue and the thread that works through it. Everything is called under Hidden.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/hosted_cuda/double/block.h"
#include "tests/hosted_cuda/double/completion.h"

struct CUstream_st {
 public:
  enum class Kind : uint8_t { kernel, copy, marker };  // markers also pass when a device has failed

  CUstream_st(int device, int number);

  [[nodiscard]] int device() const { return device_; }

  // `work` runs in its turn, under Hidden, and after what the calling thread did before this.
  void enqueue(Kind kind, std::function<void()> work);
  void enqueue_in_order(Kind kind, std::function<void()> work);  // while the machine's mutex is held

  // Completed when all that has been queued so far has run.
  std::shared_ptr<annulus::hosted::Completion> record();
  std::shared_ptr<annulus::hosted::Completion> record_in_order();  // while the machine's mutex is held
  [[nodiscard]] bool idle();

  // Runs what is queued, then ends the thread and deletes the stream.
  void close();

  // The whole grid, by the stream's thread. What went wrong, or nothing.
  std::string run(annulus::hosted::Grid& grid);

 private:
  struct Work {
    Kind kind;
    std::function<void()> run;
    uint64_t ticket;                // of a kernel
    std::unique_ptr<char> promise;  // what is before the call is before the work
  };

  void work_through();
  void work_on(Work& work);
  void delay();

  const int device_, number_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool working_ = false;
  bool closing_ = false;
  uint64_t worked_ = 0;
  std::array<std::unique_ptr<annulus::hosted::Block>, 3> blocks_;  // neighbours never use the same
};

struct CUevent_st {
  int device = 0;
  std::mutex mutex;
  std::shared_ptr<annulus::hosted::Completion> latest;  // empty until recorded
};

namespace annulus::hosted {

// Whether the handle is one; if not, the call fails.
cudaError_t check(cudaStream_t stream);
cudaError_t check(cudaEvent_t event);

}  // namespace annulus::hosted
