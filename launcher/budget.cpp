#include "launcher/budget.h"

#include <unistd.h>

namespace annulus {

int64_t memory_budget(const Settings& settings, int local_ranks) {
  if (settings.runtime.memory_budget > 0) return settings.runtime.memory_budget;
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return machine / 10 * 9 / local_ranks;
}

}  // namespace annulus
