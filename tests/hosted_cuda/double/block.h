// One block of CUDA threads, run on the thread of its stream. CUDA threads are fibres and take turns: each runs until a
// barrier or a collective of its warp stops it. To ThreadSanitizer they are threads, ordered by barriers alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/hosted_cuda/double/fibre.h"

namespace annulus::hosted {

constexpr int warp_size = 32;
constexpr int most_threads = 256;  // of a block

// One grid, as its blocks see it.
struct Grid {
  const std::function<void()>* kernel = nullptr;  // with its arguments
  int64_t blocks = 1;
  int threads = 1;
  int64_t shared_bytes = 0;
  uint64_t seed = 0;
  char begin = 0, end = 0;  // promises: what was before the grid is before its threads, and they before what follows it
};

// A copy to shared memory that has been started.
struct AsyncCopy {
  void* to = nullptr;
  const void* from = nullptr;
  int group = 0;
  int bytes = 0;
  bool valid = true;  // where not, zeros are written
};

class Block;

struct Thread {
  Thread(Block& owner, int place);

  enum class State : uint8_t { ready, at_barrier, in_warp, done };
  Block& block;
  int index;
  State state = State::done;
  std::array<AsyncCopy, 512> copies;
  int copies_started = 0;
  int group = 0;  // the one that copies are started in
  Fibre fibre;
};

using Slot = std::array<std::byte, 48>;  // what one lane brings to a collective, and takes from it
using Slots = std::array<Slot, warp_size>;
using Collective = void (*)(Slots& slots);

struct Warp {
  Collective collective = nullptr;  // the one that lanes are waiting in
  int arrived = 0;
  int finished = 0;
  int generation = 0;
  std::array<Slots, 2> slots;  // by the generation's parity: fast lanes are one ahead of slow ones at most
};

// What barriers promise: by the generation's parity, so that a slow thread does not learn of what is after the next
// one.
struct Promises {
  std::array<char, 2> barrier;
  std::array<std::array<char, 2>, most_threads / warp_size> warps;
};

class Block {
 public:
  Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  // Runs block `index` to its end. What went wrong, or nothing. Called under Hidden.
  std::string run(Grid& grid, int64_t index);

  // What the running thread may ask for.
  static Thread& self();
  [[nodiscard]] const Grid& grid() const { return *grid_; }
  [[nodiscard]] int64_t index() const { return index_; }
  void sync_threads();
  const Slots& in_warp(Collective collective, const Slot& brought, bool orders_memory);  // what all lanes hold then
  std::byte* shared_memory(int64_t offset, int64_t bytes);                               // nothing beyond it
  void check_shared(const void* address, int64_t bytes, const char* who);
  [[noreturn]] void fault(std::string message);  // taken, since the frames above are never left

 private:
  void prepare();
  void allocate_shared();
  void check_surroundings();
  void thread_main(Thread& thread);
  void make_ready(Thread& thread);
  void stop(Thread::State state);
  Fibre& next();
  void finish(Thread& thread);
  [[nodiscard]] int lanes(int warp) const;
  [[nodiscard]] std::string stuck() const;
  friend struct Thread;

  Fibre stream_;  // who called run()
  std::vector<std::unique_ptr<Thread>> threads_;
  std::array<Warp, most_threads / warp_size> warps_;
  std::array<Thread*, most_threads> ready_{};  // a ring
  int first_ready_ = 0, ready_count_ = 0;
  Grid* grid_ = nullptr;
  int64_t index_ = 0;
  int at_barrier_ = 0, finished_ = 0, barrier_generation_ = 0;
  std::unique_ptr<Promises> promises_;  // new for every block, which knows nothing of the last
  std::byte* shared_ = nullptr;
  std::string fault_;
};

}  // namespace annulus::hosted
