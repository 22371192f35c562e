// Messages of device memory over a transport that carries host memory, each copied through the host. Every exchange
// waits for the device, so nothing is hidden behind computation: for ranks that share a device, and to compare with.
#pragma once

#include "kernels/device.h"
#include "parallel/transport.h"

namespace annulus {

class StagedTransport final : public Transport {
 public:
  StagedTransport(Transport& host, Device& device) : host_(host), device_(device) {}

  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  Request exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                   Stream stream) override;
  void progress() override { host_.progress(); }
  void barrier() override { host_.barrier(); }

 private:
  Transport& host_;
  Device& device_;
};

}  // namespace annulus
