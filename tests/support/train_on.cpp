#include "parallel/transports.h"
#include "runtime/plan.h"
#include "tests/support/run_devices.h"

namespace annulus {

void train_on(const Settings& settings, int ranks, Listener& listener) {
  run_as_threads(ranks, [&](Transport& host) {
    PreparedRun run = prepare(settings, host.rank(), ranks);
    RankPlan plan = fit_rank(settings, run.model, run.mesh, 1, {});
    run.memory = plan.rule;
    const DeviceOptions options = {.threads = 1,
                                   .gpu = host.rank(),
                                   .poison = settings.debug.poison,
                                   .offload_directory = offload_directory(settings)};
    Listener nobody;
    with_device(host, options, std::move(plan.memory), [&](Device& device, Transport& transport) {
      train(run, device, transport, host.rank() == 0 ? listener : nobody);
    });
  });
}

}  // namespace annulus
