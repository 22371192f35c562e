// What a run has really taken of its device's memory, against its plan; for the log.
#pragma once

#include <cstdint>
#include <string>

namespace annulus {

// On the CPU: what this process has occupied at most so far, program and libraries included. `planned`: bytes.
std::string taken_by_process(int64_t planned);

// On GPU `gpu`: what is taken of it now, and how much of that lies outside this rank's plan of `planned` bytes. CUDA
// does not say whose memory that is, so that of other processes is counted.
std::string taken_of_gpu(int gpu, int64_t planned);

}  // namespace annulus
