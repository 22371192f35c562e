// Host memory, counted.
#pragma once

#include "kernels/memory.h"

namespace annulus::cpu {

// Sizes count rounded up to the alignment of 64 bytes. Belongs to one rank: called by one thread at a time.
class CpuMemory final : public Memory {
 public:
  // With `poison`, every buffer is filled with bytes 0xFF, NaN in each float dtype and −1 in int32, when it is
  // allocated and before it is released.
  explicit CpuMemory(bool poison) : poison_(poison) {}

  void* allocate(int64_t bytes, Purpose purpose) override;
  void release(void* data, int64_t bytes, Purpose purpose) noexcept override;

  [[nodiscard]] int64_t live_bytes() const override { return live_bytes_; }
  [[nodiscard]] int64_t peak_bytes() const override { return peak_bytes_; }

 private:
  bool poison_;
  int64_t live_bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace annulus::cpu
