#include "parallel/held_transport.h"

#include <vector>

namespace annulus {
namespace {

class HeldRequest final : public Request::State {
 public:
  HeldRequest(Request request, std::vector<View> views, Memory& memory)
      : request_(std::move(request)), views_(std::move(views)), memory_(memory) {
    for (const View& view : views_) memory_.hold(view.data(), view.bytes());
  }
  void wait_received(Stream stream) override { request_.wait_received(stream); }
  void wait(Stream stream) override {
    request_.wait(stream);
    for (const View& view : views_) memory_.let_go(view.data(), view.bytes());
  }

 private:
  Request request_;
  std::vector<View> views_;
  Memory& memory_;
};

}  // namespace

Request HeldTransport::exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                                Stream stream) {
  std::vector<View> views;
  for (const auto& messages : {sends, receives}) {
    for (const Message& message : messages) views.push_back(message.data);
  }
  Request request = transport_.exchange(sends, receives, channel, stream);
  return Request(std::make_unique<HeldRequest>(std::move(request), std::move(views), memory_));
}

}  // namespace annulus
