// The memory of one device, seen as named allocations. Every byte a run uses on a device comes from here, says what it
// is for, and is counted.
#pragma once

#include <cstdint>
#include <utility>

namespace annulus {

// What an allocation is for; the rows of the memory table.
enum class Purpose : uint8_t {
  parameters,     // weight shards and the gathered units
  gradients,      // full unit gradients and their shards
  optimizer,      // float32 master weights and both moments
  checkpoints,    // activations kept from forward for backward
  attention,      // queries, keys, values, their gradients, the running state
  mlp,            // the feed-forward part
  logits,         // a tile of logits
  communication,  // slices that travel between ranks
  staging,        // tokens, positions, masks; scalars; what files are read into and written from
  workspace,      // what an operation needs while it runs
};
inline constexpr int purpose_count = 10;

const char* name_of(Purpose purpose);

inline constexpr int64_t memory_alignment =
    64;  // bytes: a cache line, and the widest vector; sizes are rounded up to it

// A part of a run. Entered again, it allocates the same in the same order; by then what it allocated before may still
// be in use, but nothing of it when the same is asked for again.
enum class Section : uint8_t { setup, step, micro_batch, update, save };
inline constexpr int section_count = 5;

class Memory {
 public:
  virtual ~Memory() = default;

  // What is allocated from now on belongs to `section`, from its beginning.
  virtual void enter(Section /*section*/) {}

  // At least `bytes` bytes, aligned to 64, uninitialised; throws MemoryError.
  virtual void* allocate(int64_t bytes, Purpose purpose) = 0;
  virtual void release(void* data, int64_t bytes, Purpose purpose) noexcept = 0;

  // A message or a copy under way uses these bytes until they are let go. Memory that looks for mistakes reports an
  // allocation that is released before.
  virtual void hold(const void* /*data*/, int64_t /*bytes*/) {}
  virtual void let_go(const void* /*data*/, int64_t /*bytes*/) noexcept {}

  [[nodiscard]] virtual int64_t live_bytes() const = 0;
  [[nodiscard]] virtual int64_t peak_bytes() const = 0;  // the most that this memory takes up over the run
};

// Owns one allocation.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Memory& memory, int64_t bytes, Purpose purpose)
      : memory_(&memory), data_(memory.allocate(bytes, purpose)), bytes_(bytes), purpose_(purpose) {}
  Allocation(Allocation&& other) noexcept { swap(other); }
  Allocation& operator=(Allocation&& other) noexcept {
    Allocation old(std::move(*this));
    swap(other);
    return *this;
  }
  ~Allocation() {
    if (memory_ != nullptr) memory_->release(data_, bytes_, purpose_);
  }

  [[nodiscard]] void* data() const { return data_; }

 private:
  void swap(Allocation& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(purpose_, other.purpose_);
  }

  Memory* memory_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Purpose purpose_ = Purpose::staging;
};

}  // namespace annulus
