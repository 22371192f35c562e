#include "tests/hosted_cuda/double/block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/hosted_cuda/double/order.h"
#include "tests/hosted_cuda/double/seed.h"

namespace annulus::hosted {
namespace {

constexpr int64_t red_zone = 256;  // bytes on both sides of the shared memory
constexpr int untouched = 0xA5;    // what they hold
constexpr int poison = 0xFF;       // NaN in every floating-point format

thread_local Thread* running = nullptr;

}  // namespace

Thread::Thread(Block& owner, int place) : block(owner), index(place), fibre([this] { block.thread_main(*this); }) {}

Block::Block() = default;
Block::~Block() = default;

Thread& Block::self() {
  return *running;
}

int Block::lanes(int warp) const {
  return std::min(warp_size, grid_->threads - warp * warp_size);
}

std::string Block::run(Grid& grid, int64_t index) {
  grid_ = &grid;
  index_ = index;
  prepare();
  allocate_shared();
  stream_.switch_to(next());
  if (fault_.empty() && finished_ < grid.threads) fault_ = stuck();
  check_surroundings();
  std::free(shared_ - red_zone);
  if (fault_.empty()) return {};
  threads_.clear();  // they can never go on
  return "block " + std::to_string(index) + ": " + std::exchange(fault_, {});
}

// Threads begin anywhere and in either direction, by the seed.
void Block::prepare() {
  for (Warp& warp : warps_) warp.arrived = warp.finished = 0;
  promises_ = std::make_unique<Promises>();
  first_ready_ = ready_count_ = at_barrier_ = finished_ = 0;
  const auto count = static_cast<uint64_t>(grid_->threads);
  while (threads_.size() < count)
    threads_.push_back(std::make_unique<Thread>(*this, static_cast<int>(threads_.size())));
  const uint64_t random = grid_->seed == 0 ? 0 : mix(grid_->seed, static_cast<uint64_t>(index_));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t place = (i + random / 2) % count;
    Thread& thread = *threads_[random % 2 == 0 ? place : count - 1 - place];
    thread.copies_started = thread.group = 0;
    make_ready(thread);
  }
}

// Allocated anew for every block: the sanitizers then take it for memory that nobody has ever touched.
void Block::allocate_shared() {
  const auto bytes = static_cast<size_t>(grid_->shared_bytes);
  const size_t whole = (bytes + 2 * red_zone + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, whole));
  std::memset(memory, untouched, whole);
  shared_ = memory + red_zone;
  std::memset(shared_, poison, bytes);
}

void Block::check_surroundings() {
  const auto touched = [](std::byte value) { return value != std::byte{untouched}; };
  const std::byte* end = shared_ + grid_->shared_bytes;
  if (fault_.empty() &&
      (std::any_of(shared_ - red_zone, shared_, touched) || std::any_of(end, end + red_zone, touched))) {
    fault_ = "memory beside the " + std::to_string(grid_->shared_bytes) + " bytes of shared memory was written";
  }
}

void Block::thread_main(Thread& thread) {
  running = &thread;
  acquire(&grid_->begin);
  (*grid_->kernel)();
  release(&grid_->end);
  finish(thread);
}

void Block::make_ready(Thread& thread) {
  thread.state = Thread::State::ready;
  ready_[static_cast<size_t>((first_ready_ + ready_count_++) % most_threads)] = &thread;
}

Fibre& Block::next() {
  if (ready_count_ == 0) return stream_;
  Thread& thread = *ready_[static_cast<size_t>(first_ready_)];
  first_ready_ = (first_ready_ + 1) % most_threads;
  --ready_count_;
  return thread.fibre;
}

void Block::stop(Thread::State state) {
  Thread& thread = *running;
  thread.state = state;
  Fibre& other = next();
  thread.fibre.switch_to(other);
  running = &thread;
}

void Block::finish(Thread& thread) {
  ++finished_;
  Warp& warp = warps_[static_cast<size_t>(thread.index / warp_size)];
  ++warp.finished;
  if (at_barrier_ > 0) fault("thread " + std::to_string(thread.index) + " returns while others wait at a barrier");
  if (warp.arrived > 0) fault("thread " + std::to_string(thread.index) + " returns while its warp waits for it");
  stop(Thread::State::done);
}

void Block::sync_threads() {
  if (finished_ > 0)
    fault("thread " + std::to_string(running->index) + " waits at a barrier that others returned before");
  char* promise = &promises_->barrier[static_cast<size_t>(barrier_generation_ % 2)];
  release(promise);
  if (++at_barrier_ < grid_->threads) {
    stop(Thread::State::at_barrier);
  } else {
    at_barrier_ = 0;
    ++barrier_generation_;
    for (const auto& thread : threads_) {
      if (thread->state == Thread::State::at_barrier) make_ready(*thread);
    }
  }
  acquire(promise);
}

// The last lane to come does the work for all.
const Slots& Block::in_warp(Collective collective, const Slot& brought, bool orders_memory) {
  const int index = running->index / warp_size, lane = running->index % warp_size;
  Warp& warp = warps_[static_cast<size_t>(index)];
  if (warp.finished > 0) fault("thread " + std::to_string(running->index) + " needs lanes that have returned");
  if (warp.arrived > 0 && warp.collective != collective) fault("the lanes of a warp are in different instructions");
  if (!orders_memory && lanes(index) < warp_size) fault("an instruction for whole warps in a warp that is not whole");
  const auto parity = static_cast<size_t>(warp.generation % 2);
  Slots& slots = warp.slots[parity];
  warp.collective = collective;
  slots[static_cast<size_t>(lane)] = brought;
  char* promise = &promises_->warps[static_cast<size_t>(index)][parity];
  if (orders_memory) release(promise);
  if (++warp.arrived < lanes(index)) {
    stop(Thread::State::in_warp);
  } else {
    warp.arrived = 0;
    ++warp.generation;
    {
      const Hidden hidden;
      collective(slots);
    }
    for (int i = 0; i < lanes(index); ++i) {
      Thread& thread = *threads_[static_cast<size_t>(index * warp_size + i)];
      if (thread.state == Thread::State::in_warp) make_ready(thread);
    }
  }
  if (orders_memory) acquire(promise);
  return slots;
}

std::byte* Block::shared_memory(int64_t offset, int64_t bytes) {
  if (offset < 0 || bytes < 0 || offset + bytes > grid_->shared_bytes) {
    fault("bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) +
          " of shared memory are asked for, the launch gave " + std::to_string(grid_->shared_bytes));
  }
  return shared_ + offset;
}

void Block::check_shared(const void* address, int64_t bytes, const char* who) {
  const auto offset = static_cast<const std::byte*>(address) - shared_;
  if (offset < 0 || offset + bytes > grid_->shared_bytes)
    fault(std::string(who) + " outside the block's shared memory");
  if (offset % bytes != 0) fault(std::string(who) + " at an address that is no multiple of " + std::to_string(bytes));
}

void Block::fault(std::string message) {
  {
    const Hidden hidden;
    fault_ = std::move(message);
    fault_ += " (thread " + std::to_string(running->index) + ")";
  }
  while (true) running->fibre.switch_to(stream_);
}

std::string Block::stuck() const {
  std::string waiting =
      std::to_string(at_barrier_) + " of " + std::to_string(grid_->threads) + " threads wait at a barrier";
  for (size_t i = 0; i < warps_.size(); ++i) {
    if (warps_[i].arrived > 0) {
      waiting += ", " + std::to_string(warps_[i].arrived) + " lanes of warp " + std::to_string(i) + " for their warp";
    }
  }
  return waiting + ", and nobody else will come";
}

}  // namespace annulus::hosted
