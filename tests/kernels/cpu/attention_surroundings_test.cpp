// How attention treats its surroundings: memory it may not touch, the progress hook, its scratch.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <thread>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/memory.h"
#include "tests/support/attention_reference.h"

namespace annulus::testing {
namespace {

// Memory that ends the process when it is touched.
class Forbidden {
 public:
  explicit Forbidden(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  Forbidden(const Forbidden&) = delete;
  Forbidden& operator=(const Forbidden&) = delete;
  ~Forbidden() { munmap(data_, bytes_); }
  [[nodiscard]] void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

// Host arrays for a call that needs no harness.
struct Arrays {
  explicit Arrays(int64_t rows, const KeyRanges& everyone)
      : data(static_cast<size_t>(rows * 8), 0.5F),
        scalars(static_cast<size_t>(rows)),
        ranges(static_cast<size_t>(rows), everyone) {}
  View matrix() { return {data.data(), DType::float32, {static_cast<int64_t>(scalars.size()), 1, 8}}; }
  View scalar() { return {scalars.data(), DType::float32, {static_cast<int64_t>(scalars.size()), 1}}; }
  View mask() { return {ranges.data(), DType::int32, {static_cast<int64_t>(scalars.size()), 4}}; }
  std::vector<float> data, scalars;
  Ranges ranges;
};

TEST(Attention, DoesNotTouchKeysInTilesThatNobodySees) {
  const int64_t keys = 2048;
  const Forbidden key_memory(keys * 8 * 4), value_memory(keys * 8 * 4);
  const View key(key_memory.data(), DType::float32, {keys, 1, 8}),
      value(value_memory.data(), DType::float32, {keys, 1, 8});
  ASSERT_EQ(mprotect(key_memory.data(), 512 * 8 * 4, PROT_READ | PROT_WRITE), 0);
  ASSERT_EQ(mprotect(value_memory.data(), 512 * 8 * 4, PROT_READ | PROT_WRITE), 0);
  const KeySlice slice{key, value, 0};
  Arrays in(600, {100, 512, 9000, 9999}), out(600, {}), state(600, {}), query_gradient(600, {});
  cpu::CpuMemory memory(true);
  cpu::attention_forward(
      {.query = in.matrix(), .ranges = in.mask(), .keys = {&slice, 1}, .output = out.matrix(), .log_sum = out.scalar()},
      memory, 2, {});
  EXPECT_FLOAT_EQ(out.scalars[599], std::log(412.0F));
  std::vector<float> key_gradient(static_cast<size_t>(keys * 8)), value_gradient(static_cast<size_t>(keys * 8));
  const KeyGradientSlice gradient{{key_gradient.data(), DType::float32, key.shape()},
                                  {value_gradient.data(), DType::float32, key.shape()}};
  cpu::attention_backward({.query = in.matrix(),
                           .ranges = in.mask(),
                           .keys = {&slice, 1},
                           .log_sum = out.scalar(),
                           .delta = in.scalar(),
                           .output_gradient = in.matrix(),
                           .query_gradient = query_gradient.matrix(),
                           .key_gradients = {&gradient, 1}},
                          memory, 2, {});
  EXPECT_NEAR(value_gradient[100 * 8], 600 * 0.5 / 412, 2e-6);
}

TEST(Attention, ReportsProgressOnTheCallingThreadAndPassesOnWhatThatThrows) {
  Arrays in(1500, {0, 1500, 1500, 1500}), key(1500, {}), value(1500, {}), out(1500, {});
  const KeySlice slice{key.matrix(), value.matrix(), 0};
  const AttentionForward args{
      .query = in.matrix(), .ranges = in.mask(), .keys = {&slice, 1}, .output = out.matrix(), .log_sum = out.scalar()};
  cpu::CpuMemory memory(false);
  const std::thread::id caller = std::this_thread::get_id();
  int calls = 0;
  bool elsewhere = false;
  const auto count = [&] {
    if (std::this_thread::get_id() != caller) elsewhere = true;
    ++calls;
  };
  cpu::attention_forward(args, memory, 1, count);
  EXPECT_EQ(calls, 6 * 3);  // tiles of 250 queries, of 512 keys
  cpu::attention_forward(args, memory, 2, count);
  EXPECT_FALSE(elsewhere);
  EXPECT_THROW(cpu::attention_forward(args, memory, 2, [] { throw EnvironmentError("a peer is gone"); }),
               EnvironmentError);
}

TEST(Attention, TakesScratchByShapeAndThreadsNotByMaskOrSlices) {
  const auto peak = [](const Ranges& ranges, const std::vector<Piece>& pieces) {
    Arrays in(700, {}), key(700, {}), out(700, {});
    in.ranges = ranges;
    std::vector<KeySlice> slices;
    for (const Piece& piece : pieces) {
      slices.push_back(
          {key.matrix().slice(piece.begin, piece.end), key.matrix().slice(piece.begin, piece.end), piece.begin});
    }
    cpu::CpuMemory memory(false);
    cpu::attention_forward(
        {.query = in.matrix(), .ranges = in.mask(), .keys = slices, .output = out.matrix(), .log_sum = out.scalar()},
        memory, 2, {});
    return memory.peak_bytes();
  };
  const int64_t expected = peak(full_mask(700), {{0, 700}});
  EXPECT_GT(expected, 0);
  EXPECT_EQ(peak(window_mask(700, 3), {{0, 700}}), expected);
  EXPECT_EQ(peak(Ranges(700), {{0, 700}}), expected);
  EXPECT_EQ(peak(full_mask(700), {{0, 9}, {650, 700}}), expected);
  EXPECT_LT(peak(full_mask(700), {}), expected);
}

}  // namespace
}  // namespace annulus::testing
