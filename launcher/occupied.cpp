#include "launcher/occupied.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "kernels/device.h"

namespace annulus {

std::string taken_by_process(int64_t planned) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return fmt::format("this process occupied {} bytes at most, its plan has {}", int64_t{usage.ru_maxrss} * 1024,
                     planned);
}

std::string taken_of_gpu(int gpu, int64_t planned) {
  const GpuMemory memory = cuda_memory(gpu);
  const int64_t taken = memory.total - memory.available;
  return fmt::format(
      "GPU {} has {} bytes taken, of which {} are this rank's plan and {} are not, other processes' included", gpu,
      taken, planned, taken - planned);
}

}  // namespace annulus
