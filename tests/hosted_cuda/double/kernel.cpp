// The instructions of a kernel.
#include "tests/hosted_cuda/include/hosted_cuda/kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/hosted_cuda/double/block.h"
#include "tests/hosted_cuda/double/order.h"

namespace annulus::hosted {
namespace {

using Row = std::array<uint16_t, 8>;  // of a matrix of 16-bit elements

template <class T>
T read(const Slot& slot, size_t byte = 0) {
  T value;
  std::memcpy(&value, slot.data() + byte, sizeof(T));
  return value;
}

template <class T>
Slot slot_with(const T& value) {
  Slot slot;
  std::memcpy(slot.data(), &value, sizeof(T));
  return slot;
}

template <class T>
void write(Slot& slot, const T& value, size_t byte = 0) {
  std::memcpy(slot.data() + byte, &value, sizeof(T));
}

// The lanes meet; each reads what it needs. Two functions, since a warp whose lanes are in different ones is an error.
void synchronise(Slots& /*slots*/) {}
void exchange(Slots& /*slots*/) {}

const Slot& own(const Slots& slots) {
  return slots[static_cast<size_t>(Block::self().index % warp_size)];
}

// PTX ISA, "ldmatrix": threads 8i to 8i+7 address the rows of matrix i; thread T holds, of each matrix, row T/4,
// columns 2(T%4) and 2(T%4)+1; with .trans the matrix is transposed first.
template <bool transposed>
void load_matrices(Slots& slots) {
  const Slots rows = slots;
  for (size_t thread = 0; thread < slots.size(); ++thread) {
    for (size_t matrix = 0; matrix < 4; ++matrix) {
      for (size_t half = 0; half < 2; ++half) {
        const size_t row = thread / 4, column = 2 * (thread % 4) + half;
        const Row source = read<Row>(rows[8 * matrix + (transposed ? column : row)]);
        write(slots[thread], source[transposed ? row : column], 4 * matrix + 2 * half);
      }
    }
  }
}

float widened(uint16_t bfloat16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat16) << 16);
}

struct MmaOperands {
  std::array<uint16_t, 8> a;
  std::array<uint16_t, 4> b;
  std::array<float, 4> c;
};

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", with groupID = thread >> 2 and
// threadID_in_group = thread % 4:
//   a_i: row groupID for 0 <= i < 2 or 4 <= i < 6, else groupID + 8;
//        column threadID_in_group * 2 + (i & 1) for i < 4, and + 8 for i >= 4
//   b_i: row threadID_in_group * 2 + (i & 1) for i < 2, and + 8 for i >= 2; column groupID
//   c_i: row groupID for i < 2, else groupID + 8; column threadID_in_group * 2 + (i & 1)
void multiply(Slots& slots) {
  std::array<std::array<float, 16>, 16> a;
  std::array<std::array<float, 16>, 8> b;  // by column
  for (size_t thread = 0; thread < slots.size(); ++thread) {
    const auto brought = read<MmaOperands>(slots[thread]);
    const size_t group = thread >> 2, in_group = thread % 4;
    for (size_t i = 0; i < 8; ++i) {
      const size_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      a[row][in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)] = widened(brought.a[i]);
    }
    for (size_t i = 0; i < 4; ++i) b[group][in_group * 2 + (i & 1) + (i < 2 ? 0 : 8)] = widened(brought.b[i]);
  }
  for (size_t thread = 0; thread < slots.size(); ++thread) {
    std::array<float, 4> d = read<MmaOperands>(slots[thread]).c;
    for (size_t i = 0; i < 4; ++i) {
      const auto& row = a[(thread >> 2) + (i < 2 ? 0 : 8)];
      const auto& column = b[(thread % 4) * 2 + (i & 1)];
      float sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += row[k] * column[k];
      d[i] += sum;
    }
    write(slots[thread], d);
  }
}

void finish(const AsyncCopy& copy) {
  const auto bytes = static_cast<size_t>(copy.bytes);
  if (copy.valid) reads(copy.from, bytes);
  writes(copy.to, bytes);
  const Hidden hidden;
  if (copy.valid) {
    std::memcpy(copy.to, copy.from, bytes);
  } else {
    std::memset(copy.to, 0, bytes);
  }
}

}  // namespace

int thread_index() {
  return Block::self().index;
}
int block_threads() {
  return Block::self().block.grid().threads;
}
int64_t block_index() {
  return Block::self().block.index();
}
int64_t grid_blocks() {
  return Block::self().block.grid().blocks;
}

void sync_threads() {
  Block::self().block.sync_threads();
}
void sync_warp() {
  Block::self().block.in_warp(synchronise, {}, true);
}

void* shared_memory(int64_t offset, int64_t bytes, int64_t alignment) {
  Block& block = Block::self().block;
  if (offset % alignment != 0) block.fault("an array in shared memory is not aligned to its elements");
  return block.shared_memory(offset, bytes);
}

void outside_shared_array(int64_t index, int64_t size) {
  Block::self().block.fault("element " + std::to_string(index) + " of a shared array of " + std::to_string(size));
}

uint64_t shuffle(uint64_t value, int source) {
  const Slots& slots = Block::self().block.in_warp(exchange, slot_with(value), false);
  return read<uint64_t>(slots[static_cast<size_t>(source) % warp_size]);
}

// The memory is written somewhere between here and the wait. ThreadSanitizer is told of both ends, and until the wait
// the memory holds NaN.
void cp_async(void* shared, const void* global, int bytes, bool valid) {
  Thread& self = Block::self();
  self.block.check_shared(shared, bytes, "cp.async");
  if (reinterpret_cast<uintptr_t>(global) % static_cast<uintptr_t>(bytes) != 0) {
    self.block.fault("cp.async from an address that is no multiple of " + std::to_string(bytes));
  }
  if (static_cast<size_t>(self.copies_started) == self.copies.size()) {
    self.block.fault("more copies under way in a thread than the hosted device remembers");
  }
  self.copies[static_cast<size_t>(self.copies_started++)] = {shared, global, self.group, bytes, valid};
  if (valid) reads(global, static_cast<size_t>(bytes));
  writes(shared, static_cast<size_t>(bytes));
  const Hidden hidden;
  std::memset(shared, 0xFF, static_cast<size_t>(bytes));
}

void cp_async_commit_group() {
  ++Block::self().group;
}

void cp_async_wait_group(int pending) {
  Thread& self = Block::self();
  const auto begin = self.copies.begin(), end = begin + self.copies_started;
  const auto kept = std::find_if(begin, end, [&](const AsyncCopy& copy) { return copy.group >= self.group - pending; });
  std::for_each(begin, kept, finish);
  std::copy(kept, end, begin);
  self.copies_started = static_cast<int>(end - kept);
}

void ldmatrix_x4(uint32_t (&registers)[4], const void* row, bool transposed) {
  Block& block = Block::self().block;
  block.check_shared(row, 16, "ldmatrix");
  reads(row, 16);
  Row elements;
  std::memcpy(elements.data(), row, sizeof elements);
  const Collective collective = transposed ? load_matrices<true> : load_matrices<false>;
  const Slots& slots = block.in_warp(collective, slot_with(elements), false);
  std::memcpy(registers, own(slots).data(), sizeof registers);
}

void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MmaOperands brought;
  std::memcpy(brought.a.data(), a, sizeof a);
  std::memcpy(brought.b.data(), &b0, 4);
  std::memcpy(brought.b.data() + 2, &b1, 4);
  std::memcpy(brought.c.data(), d, sizeof d);
  std::memcpy(d, own(Block::self().block.in_warp(multiply, slot_with(brought), false)).data(), sizeof d);
}

}  // namespace annulus::hosted
