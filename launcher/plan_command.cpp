#include "launcher/plan_command.h"

#include <cstdio>

#include "launcher/budget.h"
#include "launcher/config_file.h"
#include "launcher/environment.h"
#include "runtime/plan_report.h"

namespace annulus {

void plan_command(const PlanArguments& arguments) {
  const Settings settings = load_settings(arguments.config, arguments.overrides, RequiredKeys::without_data);
  const int ranks = arguments.ranks.value_or(1);
  // As `annulus train --ranks` would share out this machine.
  const Launch launch = {.kind = Launch::Kind::mpirun, .ranks = ranks, .local_ranks = ranks};
  const int threads = settings.runtime.threads > 0 ? settings.runtime.threads
                                                   : threads_per_rank(launch, available_cores(process_variables()));
  const PlanReport report = plan_run(settings, ranks, threads, memory_budget(settings, ranks));
  std::fputs((arguments.json ? as_json(report) : as_table(report)).c_str(), stdout);
}

}  // namespace annulus
