#include "kernels/planned_arena.h"

#include <algorithm>
#include <utility>

#include "kernels/error.h"

namespace annulus {

PlannedArena::PlannedArena(MemoryPlan plan, bool poison, std::unique_ptr<ArenaBlock> block)
    : plan_(std::move(plan)), poison_(poison), block_(std::move(block)) {
  if (poison_) block_->fill_with_poison(block_->data(), plan_.extent);
}

void PlannedArena::enter(Section section) {
  report_damage();
  section_ = section;
  next_[static_cast<size_t>(section)] = 0;
}

void* PlannedArena::allocate(int64_t bytes, Purpose purpose) {
  report_damage();
  if (bytes == 0) return nullptr;
  if (purpose == Purpose::workspace) return lend_workspace(bytes);
  const auto& planned = plan_.sections[static_cast<size_t>(section_)];
  size_t& next = next_[static_cast<size_t>(section_)];
  require(next < planned.size(), "a run allocates no more often than its plan");
  const PlannedAllocation& allocation = planned[next++];
  const int64_t size = planned_bytes(bytes, poison_);
  require(allocation.bytes == size && allocation.purpose == purpose, "a run allocates what its plan has next");
  std::byte* const data = block_->data() + allocation.offset;
  if (poison_) block_->fill_with_poison(data, size);
  live_bytes_ += size;
  return data;
}

void* PlannedArena::lend_workspace(int64_t bytes) {
  require(planned_bytes(bytes, poison_) <= plan_.workspace.bytes, "no operation wants more workspace than planned");
  std::byte* const data = block_->data() + plan_.workspace.offset;
  if (poison_) block_->fill_with_poison(data, plan_.workspace.bytes);
  return data;
}

void PlannedArena::release(void* data, int64_t bytes, Purpose purpose) noexcept {
  if (data == nullptr) return;
  const int64_t size = planned_bytes(bytes, poison_);
  if (purpose != Purpose::workspace) live_bytes_ -= size;
  if (!poison_) return;
  auto* const begin = static_cast<std::byte*>(data);
  if (!block_->holds_poison(begin + bytes, size - bytes)) {
    damage_ = std::string("something wrote behind the end of a buffer for ") + name_of(purpose);
  }
  if (is_held(begin, size)) {
    damage_ =
        std::string("a message or copy was still under way when its buffer was released, one for ") + name_of(purpose);
  }
  block_->fill_with_poison(begin, size);
}

void PlannedArena::hold(const void* data, int64_t bytes) {
  if (poison_) held_.emplace(static_cast<const std::byte*>(data), bytes);
}

void PlannedArena::let_go(const void* data, int64_t bytes) noexcept {
  const auto [first, last] = held_.equal_range(static_cast<const std::byte*>(data));
  const auto found = std::find_if(first, last, [&](const auto& held) { return held.second == bytes; });
  if (found != last) held_.erase(found);
}

bool PlannedArena::is_held(const std::byte* data, int64_t bytes) const {
  return std::ranges::any_of(
      held_, [&](const auto& held) { return held.first < data + bytes && data < held.first + held.second; });
}

void PlannedArena::report_damage() {
  if (!damage_.empty()) throw InternalError(std::exchange(damage_, ""));
}

}  // namespace annulus
