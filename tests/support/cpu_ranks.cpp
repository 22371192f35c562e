#include "parallel/transports.h"
#include "tests/support/ranks.h"

namespace annulus {

std::unique_ptr<Device> make_shared_device() {
  return make_cpu_device({.threads = 1, .poison = true});
}

void run_ranks(int ranks, const std::function<void(Device&, Transport&)>& body) {
  run_as_threads(ranks, [&](Transport& transport) { body(*make_shared_device(), transport); });
}

}  // namespace annulus
