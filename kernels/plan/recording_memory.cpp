#include "kernels/plan/recording_memory.h"

#include <algorithm>

#include "kernels/error.h"

namespace annulus {

void RecordingMemory::enter(Section section) {
  section_ = section;
  again_ = !plan_.sections[static_cast<size_t>(section)].empty();
  next_[static_cast<size_t>(section)] = 0;
}

void* RecordingMemory::allocate(int64_t bytes, Purpose purpose) {
  if (bytes == 0) return nullptr;
  const int64_t size = planned_bytes(bytes, red_zones_);
  if (purpose == Purpose::workspace) {
    require(!workspace_in_use_, "one operation uses workspace at a time");
    workspace_in_use_ = true;
    plan_.workspace.bytes = std::max(plan_.workspace.bytes, size);
    return &plan_.workspace;
  }
  auto& section = plan_.sections[static_cast<size_t>(section_)];
  void* const address = reinterpret_cast<void*>(next_address_);  // NOLINT(performance-no-int-to-ptr): never followed
  next_address_ += static_cast<uintptr_t>(size);
  const size_t index = next_[static_cast<size_t>(section_)]++;
  if (!again_) section.push_back({.bytes = size, .purpose = purpose, .lives = {}});
  require(index < section.size() && section[index].bytes == size && section[index].purpose == purpose,
          "a section that is entered again asks for the same");
  auto& lives = section[index].lives;
  require(lives.empty() || lives.back().end <= time_, "what a section asks for again is no longer in use");
  lives.push_back({.begin = time_++});
  live_.emplace(address, Place{section_, index});
  live_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_ + plan_.workspace.bytes);
  return address;
}

void RecordingMemory::release(void* data, int64_t bytes, Purpose purpose) noexcept {
  if (data == nullptr) return;
  if (purpose == Purpose::workspace) {
    workspace_in_use_ = false;
    return;
  }
  const auto found = live_.find(data);
  plan_.sections[static_cast<size_t>(found->second.section)][found->second.index].lives.back().end = time_++;
  live_.erase(found);
  live_bytes_ -= planned_bytes(bytes, red_zones_);
}

}  // namespace annulus
