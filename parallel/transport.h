// How messages travel between ranks. There is one operation, a posted exchange; gathering and reducing are built on it,
// so that the order of sums is ours on every transport.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace annulus {

// Messages between two ranks on one channel arrive in the order they were posted; channels are independent of each
// other.
enum class Channel : uint8_t { keys, key_gradients, parameters, gradients, scalars };
inline constexpr int channel_count = 5;

struct Message {
  int peer = 0;  // the other rank, never one's own
  View data;  // device memory that stays untouched (sends) or unread (receives) until the request has been waited for
};

// An exchange under way. Moves; must be waited for before it is destroyed, unless the job is failing.
class Request {
 public:
  struct State {
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    virtual ~State() = default;
    virtual void wait_received(Stream stream) = 0;
    virtual void wait(Stream stream) = 0;
  };

  Request() = default;
  explicit Request(std::unique_ptr<State> state) : state_(std::move(state)) {}

  // What is queued on `stream` afterwards may read what was received; what was sent may still be under way.
  void wait_received(Stream stream) {
    if (state_) state_->wait_received(stream);
  }

  // What is queued on `stream` afterwards may use the memory of all messages. Nothing to do for an empty request.
  void wait(Stream stream) {
    if (state_) std::exchange(state_, nullptr)->wait(stream);
  }

 private:
  std::unique_ptr<State> state_;
};

class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Posts all messages and returns. Messages leave and land after what was queued on `stream` before the call. The n-th
  // message posted to a peer on a channel meets the n-th the peer posted for this rank there, and must be of the same
  // size.
  virtual Request exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                           Stream stream) = 0;

  // Moves what can be moved; called between the tiles of long operations.
  virtual void progress() = 0;

  // Returns when every rank has called it.
  virtual void barrier() = 0;
};

}  // namespace annulus
