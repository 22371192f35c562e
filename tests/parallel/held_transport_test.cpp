// A message's memory must stay until its request has been waited for.
#include "parallel/held_transport.h"

#include <gtest/gtest.h>

#include "kernels/device.h"
#include "kernels/error.h"
#include "parallel/transports.h"

namespace annulus {
namespace {

MemoryPlan one_buffer_a_step() {
  MemoryPlan plan;
  plan.sections[static_cast<size_t>(Section::step)] = {
      {.bytes = planned_bytes(400, true), .purpose = Purpose::communication}};
  place(plan);
  return plan;
}

// Two ranks exchange a buffer each; rank 1 posts and waits, rank 0 gives its buffer back at once unless it `waits`.
void exchange_and_release(Transport& transport, Device& device, bool waits) {
  HeldTransport held(transport, device.memory());
  device.memory().enter(Section::step);
  const Tensor buffer = device.allocate({100}, DType::float32, Purpose::communication);
  device.fill_zero(buffer, {});
  const int peer = 1 - transport.rank();
  const Message send{peer, buffer->slice(0, 50)}, receive{peer, buffer->slice(50, 100)};
  Request request = held.exchange({&send, 1}, {&receive, 1}, Channel::keys, {});
  transport.barrier();
  if (waits || transport.rank() == 1) request.wait({});
}

TEST(HeldTransport, ReportsABufferThatIsReleasedTooEarly) {
  for (const bool waits : {true, false}) {
    run_as_threads(2, [waits](Transport& transport) {
      const auto device = make_cpu_device({.threads = 1, .poison = true}, one_buffer_a_step());
      exchange_and_release(transport, *device, waits);
      transport.barrier();
      if (waits || transport.rank() == 1) {
        EXPECT_NO_THROW(device->memory().enter(Section::step));
      } else {
        EXPECT_THROW(device->memory().enter(Section::step), InternalError);
      }
    });
  }
}

}  // namespace
}  // namespace annulus
