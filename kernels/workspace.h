// How much scratch a device's operations take from its memory while they run. The plan asks here what the device itself asks
// when it computes.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device.h"

namespace annulus {

// Bytes of Purpose::workspace; operations that are not named here take none.
class WorkspaceSizes {
 public:
  virtual ~WorkspaceSizes() = default;
  [[nodiscard]] virtual int64_t matmul(const Matmul& args) const = 0;
  [[nodiscard]] virtual int64_t attention_forward(const AttentionForward& args) const = 0;
  [[nodiscard]] virtual int64_t attention_backward(const AttentionBackward& args) const = 0;
  [[nodiscard]] virtual int64_t rms_norm_backward(const RmsNormBackward& args) const = 0;
  [[nodiscard]] virtual int64_t rotary_angles(const View& cosine) const = 0;
  [[nodiscard]] virtual int64_t head_norm_rotary_backward(const HeadNormRotaryBackward& args) const = 0;
  [[nodiscard]] virtual int64_t sum(const View& source) const = 0;  // also of squares
};

std::unique_ptr<WorkspaceSizes> cpu_workspace_sizes(int threads);
std::unique_ptr<WorkspaceSizes> cuda_workspace_sizes();  // also in builds without CUDA

}  // namespace annulus
