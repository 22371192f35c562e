#include "kernels/cpu/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/error.h"

namespace annulus::cpu {
namespace {

class HostBlock final : public ArenaBlock {
 public:
  explicit HostBlock(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    if (bytes == 0) return;
    void* block = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
      throw MemoryError("the host does not give the " + std::to_string(bytes) +
                        " bytes this rank needs; use more ranks, a shorter sequence or a smaller model");
    }
    data_ = static_cast<std::byte*>(block);
    // Matrices walk over more pages of 4 KiB than a CPU knows the places of. Where the system has no large ones, none.
    ::madvise(block, bytes_, MADV_HUGEPAGE);
  }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  ~HostBlock() override {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  [[nodiscard]] std::byte* data() const override { return data_; }
  void fill_with_poison(std::byte* begin, int64_t bytes) noexcept override {
    if (bytes > 0) std::memset(begin, poison_byte, static_cast<size_t>(bytes));
  }
  [[nodiscard]] bool holds_poison(const std::byte* begin, int64_t bytes) const noexcept override {
    return std::all_of(begin, begin + bytes, [](std::byte b) { return b == std::byte{poison_byte}; });
  }

 private:
  size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace

std::unique_ptr<ArenaBlock> make_arena_block(int64_t bytes) {
  return std::make_unique<HostBlock>(bytes);
}

}  // namespace annulus::cpu
