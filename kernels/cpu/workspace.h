// The scratch that operations on the CPU take, in bytes; each operation asks here too.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace annulus::cpu {

int64_t matmul_workspace(const Matmul& args, int threads);

// The powers of theta, in float64.
inline int64_t rotary_angles_workspace(int64_t half_head_dim) {
  return half_head_dim * static_cast<int64_t>(sizeof(double));
}

}  // namespace annulus::cpu
