// A transport that looks for mistakes: the memory of every message is held until its request has been waited for.
#pragma once

#include "kernels/memory.h"
#include "parallel/transport.h"

namespace annulus {

class HeldTransport final : public Transport {
 public:
  HeldTransport(Transport& transport, Memory& memory) : transport_(transport), memory_(memory) {}

  [[nodiscard]] int rank() const override { return transport_.rank(); }
  [[nodiscard]] int size() const override { return transport_.size(); }
  Request exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                   Stream stream) override;
  void progress() override { transport_.progress(); }
  void barrier() override { transport_.barrier(); }

 private:
  Transport& transport_;
  Memory& memory_;
};

}  // namespace annulus
