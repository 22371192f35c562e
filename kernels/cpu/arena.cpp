#include "kernels/cpu/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/error.h"
#include "kernels/narrow.h"

namespace annulus::cpu {
namespace {

constexpr int poison_byte = 0xFF;  // NaN in every float dtype, −1 in int32

}  // namespace

CpuArena::CpuArena(MemoryPlan plan, bool poison) : plan_(std::move(plan)), poison_(poison) {
  if (plan_.extent == 0) return;
  const auto bytes = static_cast<size_t>(plan_.extent);
  void* block = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) {
    throw MemoryError("the host does not give the " + std::to_string(plan_.extent) +
                      " bytes this rank needs; use more ranks, a shorter sequence or a smaller model");
  }
  block_ = static_cast<std::byte*>(block);
  if (poison_) std::memset(block_, poison_byte, bytes);
}

CpuArena::~CpuArena() {
  if (block_ != nullptr) ::munmap(block_, static_cast<size_t>(plan_.extent));
}

void CpuArena::enter(Section section) {
  report_damage();
  section_ = section;
  next_[static_cast<size_t>(section)] = 0;
}

void* CpuArena::allocate(int64_t bytes, Purpose purpose) {
  report_damage();
  if (bytes == 0) return nullptr;
  if (purpose == Purpose::workspace) return lend_workspace(bytes);
  const auto& planned = plan_.sections[static_cast<size_t>(section_)];
  size_t& next = next_[static_cast<size_t>(section_)];
  require(next < planned.size(), "a run allocates no more often than its plan");
  const PlannedAllocation& allocation = planned[next++];
  const int64_t size = planned_bytes(bytes, poison_);
  require(allocation.bytes == size && allocation.purpose == purpose, "a run allocates what its plan has next");
  std::byte* const data = block_ + allocation.offset;
  if (poison_) std::memset(data, poison_byte, static_cast<size_t>(size));
  live_bytes_ += size;
  return data;
}

void* CpuArena::lend_workspace(int64_t bytes) {
  require(planned_bytes(bytes, poison_) <= plan_.workspace.bytes, "no operation wants more workspace than planned");
  std::byte* const data = block_ + plan_.workspace.offset;
  if (poison_) std::memset(data, poison_byte, static_cast<size_t>(plan_.workspace.bytes));
  return data;
}

void CpuArena::release(void* data, int64_t bytes, Purpose purpose) noexcept {
  if (data == nullptr) return;
  const int64_t size = planned_bytes(bytes, poison_);
  if (purpose != Purpose::workspace) live_bytes_ -= size;
  if (!poison_) return;
  auto* const begin = static_cast<std::byte*>(data);
  const bool intact = std::all_of(begin + bytes, begin + size, [](std::byte b) { return b == std::byte{poison_byte}; });
  if (!intact) damage_ = std::string("something wrote behind the end of a buffer for ") + name_of(purpose);
  if (is_held(begin, size)) {
    damage_ =
        std::string("a message or copy was still under way when its buffer was released, one for ") + name_of(purpose);
  }
  std::memset(begin, poison_byte, static_cast<size_t>(size));
}

void CpuArena::hold(const void* data, int64_t bytes) {
  if (poison_) held_.emplace(static_cast<const std::byte*>(data), bytes);
}

void CpuArena::let_go(const void* data, int64_t bytes) noexcept {
  const auto [first, last] = held_.equal_range(static_cast<const std::byte*>(data));
  const auto found = std::find_if(first, last, [&](const auto& held) { return held.second == bytes; });
  if (found != last) held_.erase(found);
}

bool CpuArena::is_held(const std::byte* data, int64_t bytes) const {
  return std::ranges::any_of(
      held_, [&](const auto& held) { return held.first < data + bytes && data < held.first + held.second; });
}

void CpuArena::report_damage() {
  if (!damage_.empty()) throw InternalError(std::exchange(damage_, ""));
}

}  // namespace annulus::cpu
