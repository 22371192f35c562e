// Room outside a device's memory for what is not needed at the moment: the host's memory or a file. Like the device's
// memory it is planned: what a run reserves is known before it starts, and is the same in every run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace annulus {

enum class Place : uint8_t { device, host, disk };

// Bytes in places beside the device.
struct StoredBytes {
  int64_t host = 0;
  int64_t disk = 0;
  [[nodiscard]] int64_t in(Place place) const { return place == Place::host ? host : place == Place::disk ? disk : 0; }
  friend bool operator==(const StoredBytes&, const StoredBytes&) = default;
};

// A copy under way. Moves; must be waited for before the memory on the device is used otherwise.
class Transfer {
 public:
  struct State {
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    virtual ~State() = default;
    virtual void wait(Stream stream) = 0;
  };

  Transfer() = default;
  explicit Transfer(std::unique_ptr<State> state) : state_(std::move(state)) {}

  // What is queued on `stream` afterwards finds the copy done. Nothing to do for an empty transfer. Throws MemoryError
  // or EnvironmentError, naming the file, where the copy failed.
  void wait(Stream stream) {
    if (state_) std::exchange(state_, nullptr)->wait(stream);
  }

 private:
  std::unique_ptr<State> state_;
};

// Transfers run in the order of their calls, beside what the device computes.
class Storage {
 public:
  virtual ~Storage() = default;

  // `bytes` bytes for the life of the storage, all zero; returns where they begin.
  virtual int64_t reserve(int64_t bytes) = 0;

  // Between all of a view and the bytes from `offset` on, after what was queued on `stream` before the call.
  virtual Transfer store(int64_t offset, View source, Stream stream) = 0;
  virtual Transfer load(View destination, int64_t offset, Stream stream) = 0;
};

}  // namespace annulus
