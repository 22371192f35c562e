#include "launcher/budget.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "parallel/sharded_parameters.h"

namespace annulus {

int64_t memory_budget(const Settings& settings, int local_ranks) {
  if (settings.runtime.memory_budget > 0) return settings.runtime.memory_budget;
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return machine / 10 * 9 / local_ranks;
}

int64_t smallest_of_all(int64_t value, Transport& transport) {
  std::vector<double> values(static_cast<size_t>(transport.size()));  // exact: bytes stay far below 2^53
  values[static_cast<size_t>(transport.rank())] = static_cast<double>(value);
  gather_rows({values.data(), DType::float64, {transport.size(), 1}}, transport, {});
  return static_cast<int64_t>(std::ranges::min(values));
}

}  // namespace annulus
