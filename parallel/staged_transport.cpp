#include "parallel/staged_transport.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace annulus {
namespace {

// A message's copy in host memory.
struct Staged {
  Message message;  // of device memory
  std::vector<std::byte> bytes;

  explicit Staged(const Message& original) : message(original), bytes(static_cast<size_t>(original.data.bytes())) {}
  [[nodiscard]] Message on_host() {
    return {message.peer, View(bytes.data(), message.data.dtype(), message.data.shape())};
  }
};

std::vector<Message> on_host(std::vector<Staged>& staged) {
  std::vector<Message> messages;
  for (Staged& one : staged) messages.push_back(one.on_host());
  return messages;
}

class StagedRequest final : public Request::State {
 public:
  StagedRequest(Device& device, std::span<const Message> sends, std::span<const Message> receives)
      : device_(device), sends_(sends.begin(), sends.end()), receives_(receives.begin(), receives.end()) {}

  void post(Transport& host, Channel channel, Stream stream) {
    for (Staged& send : sends_) device_.download(send.bytes.data(), send.message.data, stream);
    request_ = host.exchange(on_host(sends_), on_host(receives_), channel, stream);
  }

  void wait_received(Stream stream) override {
    if (received_) return;
    received_ = true;
    request_.wait_received(stream);
    for (const Staged& receive : receives_) device_.upload(receive.message.data, receive.bytes.data(), stream);
  }
  void wait(Stream stream) override {
    wait_received(stream);
    request_.wait(stream);
  }

 private:
  Device& device_;
  std::vector<Staged> sends_, receives_;
  Request request_;
  bool received_ = false;
};

}  // namespace

Request StagedTransport::exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                                  Stream stream) {
  auto request = std::make_unique<StagedRequest>(device_, sends, receives);
  request->post(host_, channel, stream);
  return Request(std::move(request));
}

}  // namespace annulus
