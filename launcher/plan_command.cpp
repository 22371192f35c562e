#include "launcher/plan_command.h"

#include <malloc.h>

#include "launcher/budget.h"
#include "launcher/config_file.h"
#include "launcher/device_choice.h"
#include "launcher/environment.h"
#include "launcher/print.h"
#include "runtime/plan_report.h"

namespace annulus {
namespace {

// Plans follow one another, each with the same host memory: it is kept in between, since taking it from the system
// afresh took as long as planning.
void keep_released_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

}  // namespace

void plan_command(const PlanArguments& arguments, const Launch& launch) {
  if (launch.rank > 0) return;
  Settings settings = load_settings(arguments.config, arguments.overrides,
                                    arguments.data ? RequiredKeys::all : RequiredKeys::without_data);
  settings.runtime.device = choose_device(settings);
  const int ranks = arguments.ranks.value_or(launch.ranks.value_or(1));
  // As `annulus train --ranks` would share out this machine, unless a launcher has.
  const int local_ranks = launch.local_ranks.value_or(ranks);
  const Launch shared = {.kind = Launch::Kind::mpirun, .ranks = ranks, .local_ranks = local_ranks};
  const int threads = settings.runtime.threads > 0 ? settings.runtime.threads
                                                   : threads_per_rank(shared, available_cores(process_variables()));
  keep_released_memory();
  const PlanReport report = plan_run({.settings = settings,
                                      .ranks = ranks,
                                      .threads = threads,
                                      .budget = budget_of(settings, ranks, local_ranks, 0),
                                      .data = arguments.data});
  print(arguments.json ? as_json(report) : as_table(report));
}

}  // namespace annulus
