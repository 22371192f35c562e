// A transport whose time is counted as communication by a device's clock: on the CPU all time inside the transport, on
// a GPU what the compute stream waits for messages.
#pragma once

#include "kernels/activity_clock.h"
#include "parallel/transport.h"

namespace annulus {

class TimedTransport final : public Transport {
 public:
  TimedTransport(Transport& transport, ActivityClock& clock) : transport_(transport), clock_(clock) {}

  [[nodiscard]] int rank() const override { return transport_.rank(); }
  [[nodiscard]] int size() const override { return transport_.size(); }
  Request exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                   Stream stream) override;
  void progress() override;
  void barrier() override;

 private:
  Transport& transport_;
  ActivityClock& clock_;
};

}  // namespace annulus
