// Memory that is not there: notes what is asked for and when it is given back. Its addresses are distinct and must not
// be followed.
#pragma once

#include <array>
#include <map>

#include "kernels/memory_plan.h"

namespace annulus {

class RecordingMemory final : public Memory {
 public:
  explicit RecordingMemory(bool red_zones) : red_zones_(red_zones) {}

  // InternalError where a section that is entered again asks for something else than before, or for what is still in
  // use.
  void enter(Section section) override;
  void* allocate(int64_t bytes, Purpose purpose) override;
  void release(void* data, int64_t bytes, Purpose purpose) noexcept override;

  [[nodiscard]] int64_t live_bytes() const override { return live_bytes_; }
  [[nodiscard]] int64_t peak_bytes() const override { return peak_bytes_; }
  [[nodiscard]] int64_t time() const { return time_; }  // allocations and releases so far

  // What was recorded, not yet placed.
  [[nodiscard]] const MemoryPlan& recorded() const { return plan_; }

 private:
  struct Place {
    Section section;
    size_t index;
  };

  bool red_zones_;
  bool workspace_in_use_ = false;
  MemoryPlan plan_;
  Section section_ = Section::setup;
  bool again_ = false;                        // the section has been there before
  std::array<size_t, section_count> next_{};  // by section: the allocation that is asked for next
  std::map<void*, Place> live_;
  uintptr_t next_address_ = 4096;
  int64_t time_ = 0, live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace annulus
