// Storage that is not there: counts what is reserved and what would move.
#pragma once

#include "kernels/narrow.h"
#include "kernels/storage.h"

namespace annulus {

class PlanStorage final : public Storage {
 public:
  int64_t reserve(int64_t bytes) override {
    const int64_t begin = reserved_;
    reserved_ += round_up(bytes, memory_alignment);
    return begin;
  }
  Transfer store(int64_t /*offset*/, View source, Stream /*stream*/) override {
    moved_ += source.bytes();
    return {};
  }
  Transfer load(View destination, int64_t /*offset*/, Stream /*stream*/) override {
    moved_ += destination.bytes();
    return {};
  }

  [[nodiscard]] int64_t reserved_bytes() const { return reserved_; }
  [[nodiscard]] int64_t moved_bytes() const { return moved_; }  // both ways

 private:
  int64_t reserved_ = 0, moved_ = 0;
};

}  // namespace annulus
