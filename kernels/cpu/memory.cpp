#include "kernels/cpu/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/error.h"
#include "kernels/narrow.h"

namespace annulus::cpu {
namespace {

constexpr int64_t alignment = 64;  // a cache line, and the widest vector

}  // namespace

void* CpuMemory::allocate(int64_t bytes, Purpose purpose) {
  require(bytes >= 0 && bytes <= std::numeric_limits<int64_t>::max() - alignment, "an allocation has a possible size");
  const int64_t size = round_up(bytes, alignment);
  if (size == 0) return nullptr;
  void* data = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(size));
  if (data == nullptr) {
    throw MemoryError("the host has no " + std::to_string(bytes) + " bytes left for " + name_of(purpose) + " (" +
                      std::to_string(live_bytes_) +
                      " bytes of this rank are in use); use more ranks, a shorter sequence or a smaller model");
  }
  if (poison_) std::memset(data, 0xFF, static_cast<size_t>(size));
  live_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  return data;
}

void CpuMemory::release(void* data, int64_t bytes, Purpose /*purpose*/) noexcept {
  if (data == nullptr) return;
  const int64_t size = round_up(bytes, alignment);
  if (poison_) std::memset(data, 0xFF, static_cast<size_t>(size));
  live_bytes_ -= size;
  std::free(data);
}

}  // namespace annulus::cpu
