#include "tests/hosted_cuda/double/stream.h"

#include <thread>
#include <utility>

#include "tests/hosted_cuda/double/machine.h"
#include "tests/hosted_cuda/double/order.h"
#include "tests/hosted_cuda/double/seed.h"

using annulus::hosted::Completion;
using annulus::hosted::Hidden;
using annulus::hosted::Machine;
using annulus::hosted::Shown;

CUstream_st::CUstream_st(int device, int number) : device_(device), number_(number) {
  std::thread([this] { work_through(); }).detach();
}

void CUstream_st::enqueue(Kind kind, std::function<void()> run) {
  // Over ticket and queue, so that tickets are in the order of every queue.
  const std::scoped_lock order(Machine::instance().mutex);
  enqueue_in_order(kind, std::move(run));
}

void CUstream_st::enqueue_in_order(Kind kind, std::function<void()> run) {
  Work work{kind, std::move(run), 0, std::make_unique<char>()};
  {
    const Shown shown;
    annulus::hosted::release(work.promise.get());
  }
  Machine& machine = Machine::instance();
  if (kind == Kind::kernel) work.ticket = machine.devices[device_].launched++;
  const std::scoped_lock lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

std::shared_ptr<Completion> CUstream_st::record() {
  auto completion = std::make_shared<Completion>();
  enqueue(Kind::marker, [completion] { completion->complete(); });
  return completion;
}

std::shared_ptr<Completion> CUstream_st::record_in_order() {
  auto completion = std::make_shared<Completion>();
  enqueue_in_order(Kind::marker, [completion] { completion->complete(); });
  return completion;
}

bool CUstream_st::idle() {
  const std::scoped_lock lock(mutex_);
  return queue_.empty() && !working_;
}

void CUstream_st::close() {
  const std::scoped_lock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
}

void CUstream_st::work_through() {
  const Hidden hidden;
  while (true) {
    std::unique_lock lock(mutex_);
    working_ = false;
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) break;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    working_ = true;
    lock.unlock();
    work_on(work);
  }
  delete this;
}

void CUstream_st::work_on(Work& work) {
  delay();
  {
    const Shown shown;
    annulus::hosted::acquire(work.promise.get());
  }
  Machine& machine = Machine::instance();
  std::unique_lock lock(machine.mutex);
  if (work.kind == Kind::kernel && machine.one_kernel_at_a_time) {
    machine.kernel_finished.wait(lock, [&] { return machine.devices[device_].finished == work.ticket; });
  }
  const bool failed = machine.sticky != cudaSuccess;
  lock.unlock();
  if (!failed || work.kind == Kind::marker) work.run();
  if (work.kind != Kind::kernel) return;
  lock.lock();
  ++machine.devices[device_].finished;
  machine.kernel_finished.notify_all();
}

// Now and then up to a third of a millisecond, by the seed.
void CUstream_st::delay() {
  const uint64_t seed = annulus::hosted::seed();
  if (seed == 0) return;
  const auto place = static_cast<uint64_t>(device_) << 8 | static_cast<uint64_t>(number_);
  const uint64_t random = annulus::hosted::mix(annulus::hosted::mix(seed, place), worked_++);
  if (random % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds((random >> 8) % 333));
}

std::string CUstream_st::run(annulus::hosted::Grid& grid) {
  {
    const Shown shown;
    annulus::hosted::release(&grid.begin);
  }
  size_t place = 0;
  std::string fault;
  for (int64_t block = 0; block < grid.blocks && fault.empty(); ++block) {
    const uint64_t random = annulus::hosted::mix(grid.seed, static_cast<uint64_t>(block));
    place = (place + 1 + random % (blocks_.size() - 1)) % blocks_.size();
    if (!blocks_[place]) blocks_[place] = std::make_unique<annulus::hosted::Block>();
    fault = blocks_[place]->run(grid, block);
  }
  const Shown shown;
  annulus::hosted::acquire(&grid.end);
  return fault;
}

namespace annulus::hosted {

cudaError_t check(cudaStream_t stream) {
  if (const cudaError_t error = sticky(); error != cudaSuccess) return error;
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle,
                "the default stream, which the hosted device refuses: it orders what should not be");
  }
  Machine& machine = Machine::instance();
  {
    const std::scoped_lock lock(machine.mutex);
    for (const auto& [number, device] : machine.devices) {
      if (device.streams.contains(stream)) return cudaSuccess;
    }
  }
  return fail(cudaErrorInvalidResourceHandle, "a stream that does not exist");
}

cudaError_t check(cudaEvent_t event) {
  if (const cudaError_t error = sticky(); error != cudaSuccess) return error;
  Machine& machine = Machine::instance();
  {
    const std::scoped_lock lock(machine.mutex);
    for (const auto& [number, device] : machine.devices) {
      if (device.events.contains(event)) return cudaSuccess;
    }
  }
  return fail(cudaErrorInvalidResourceHandle, "an event that does not exist");
}

}  // namespace annulus::hosted
