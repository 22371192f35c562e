#include "parallel/timed_transport.h"

namespace annulus {
namespace {

class TimedRequest final : public Request::State {
 public:
  TimedRequest(Request request, ActivityClock& clock) : request_(std::move(request)), clock_(clock) {}

  void wait_received(Stream stream) override {
    const ActivityScope scope(clock_, Activity::communication);
    request_.wait_received(stream);
  }
  void wait(Stream stream) override {
    const ActivityScope scope(clock_, Activity::communication);
    request_.wait(stream);
  }

 private:
  Request request_;
  ActivityClock& clock_;
};

}  // namespace

Request TimedTransport::exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                                 Stream stream) {
  if (sends.empty() && receives.empty()) return {};
  const ActivityScope scope(clock_, Activity::communication);
  return Request(std::make_unique<TimedRequest>(transport_.exchange(sends, receives, channel, stream), clock_));
}

void TimedTransport::progress() {
  const ActivityScope scope(clock_, Activity::communication);
  transport_.progress();
}

void TimedTransport::barrier() {
  const ActivityScope scope(clock_, Activity::communication);
  transport_.barrier();
}

}  // namespace annulus
