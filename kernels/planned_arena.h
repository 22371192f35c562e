// The planned memory of a run on any device: one block, every buffer at its planned place, no allocator.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "kernels/memory_plan.h"

namespace annulus {

inline constexpr int poison_byte = 0xFF;  // NaN in every float dtype, −1 in int32

// Owns the memory of an arena. Filling and looking happen after what the device was given to do before.
class ArenaBlock {
 public:
  virtual ~ArenaBlock() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  virtual void fill_with_poison(std::byte* begin, int64_t bytes) noexcept = 0;
  [[nodiscard]] virtual bool holds_poison(const std::byte* begin, int64_t bytes) const noexcept = 0;
};

class PlannedArena final : public Memory {
 public:
  // `block` has the plan's extent. With `poison`, buffers are filled with the poison byte when they are allocated and
  // released, the red zone that the plan left behind each of them is checked, and so is that nothing that was held is
  // released. InternalError, at the next allocation or section, names the purpose of the buffer.
  PlannedArena(MemoryPlan plan, bool poison, std::unique_ptr<ArenaBlock> block);

  // A step after the first asks for the same as the first.
  void enter(Section section) override;

  // InternalError where the run asks for something else than the plan has next.
  void* allocate(int64_t bytes, Purpose purpose) override;
  void release(void* data, int64_t bytes, Purpose purpose) noexcept override;

  void hold(const void* data, int64_t bytes) override;
  void let_go(const void* data, int64_t bytes) noexcept override;

  [[nodiscard]] int64_t live_bytes() const override { return live_bytes_; }
  [[nodiscard]] int64_t peak_bytes() const override { return plan_.extent; }

 private:
  void* lend_workspace(int64_t bytes);
  [[nodiscard]] bool is_held(const std::byte* data, int64_t bytes) const;
  void report_damage();

  MemoryPlan plan_;
  bool poison_;
  std::unique_ptr<ArenaBlock> block_;
  Section section_ = Section::setup;
  std::array<size_t, section_count> next_{};  // by section: the allocation that is asked for next
  int64_t live_bytes_ = 0;
  std::multimap<const std::byte*, int64_t> held_;  // bytes by where they begin
  std::string damage_;                             // found on release, which cannot throw
};

}  // namespace annulus
