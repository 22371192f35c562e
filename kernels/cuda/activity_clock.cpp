#include "kernels/cuda/activity_clock.h"

#include <utility>

namespace annulus::cuda {
namespace {

constexpr size_t kept_changes = 1024;  // beyond which those that are over are counted and their events used again

EventHandle make_timing_event() {
  cudaEvent_t event = nullptr;
  ANNULUS_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return EventHandle(event);
}

}  // namespace

void CudaActivityClock::enter(Activity activity) {
  nested_.push_back(activity);
  change();
}

void CudaActivityClock::leave() {
  nested_.pop_back();
  change();
}

void CudaActivityClock::change() {
  if (spare_.empty()) spare_.push_back(make_timing_event());
  EventHandle event = std::move(spare_.back());
  spare_.pop_back();
  ANNULUS_CUDA_CHECK(cudaEventRecord(event.get(), stream_));
  changes_.push_back({std::move(event), nested_.empty() ? std::nullopt : std::optional(nested_.back())});
  while (changes_.size() > kept_changes && cudaEventQuery(changes_[1].event.get()) == cudaSuccess) count_first();
}

void CudaActivityClock::count_first() {
  Change& first = changes_.front();
  if (first.activity) {
    float milliseconds = 0;
    ANNULUS_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, first.event.get(), changes_[1].event.get()));
    spent_.add(*first.activity, 1e-3 * static_cast<double>(milliseconds));
  }
  spare_.push_back(std::move(first.event));
  changes_.pop_front();
}

ActivitySeconds CudaActivityClock::take() {
  if (!changes_.empty()) ANNULUS_CUDA_CHECK(cudaEventSynchronize(changes_.back().event.get()));
  while (changes_.size() > 1) count_first();
  return std::exchange(spent_, {});
}

}  // namespace annulus::cuda
