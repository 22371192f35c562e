#include "parallel/transports.h"
#include "tests/support/ranks.h"

namespace annulus {

void run_ranks(int ranks, const std::function<void(Device&, Transport&)>& body) {
  run_as_threads(ranks, [&](Transport& transport) {
    const auto device = make_cpu_device({.threads = 1, .poison = true});
    body(*device, transport);
  });
}

}  // namespace annulus
