#include "kernels/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/memory.h"
#include "kernels/narrow.h"
#include "kernels/philox.h"

namespace annulus {
namespace {

TEST(Shape, CountsItsElementsBeyond32Bits) {
  EXPECT_EQ((Shape{70'000, 70'000}.elements()), 4'900'000'000);
  EXPECT_EQ((Shape{3, 0, 5}.elements()), 0);
  EXPECT_EQ(Shape().elements(), 0);
}

TEST(Shape, ReadsLikeATuple) {
  EXPECT_EQ((Shape{3, 4}.to_string()), "(3, 4)");
  EXPECT_EQ((Shape{7}.to_string()), "(7)");
}

TEST(Shape, RefusesNegativeAndTooManyDimensions) {
  EXPECT_THROW((Shape{3, -1}), InternalError);
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), InternalError);
}

TEST(View, SlicesWholeRows) {
  std::array<float, 12> data{};
  const View view(data.data(), DType::float32, {4, 3});
  const View slice = view.slice(1, 3);
  EXPECT_EQ(slice.data(), &data[3]);
  EXPECT_EQ(slice.shape(), (Shape{2, 3}));
  EXPECT_TRUE(view.slice(4, 4).empty());
  EXPECT_THROW(static_cast<void>(view.slice(3, 5)), InternalError);
  EXPECT_THROW(static_cast<void>(view.slice(2, 1)), InternalError);
}

TEST(View, SlicesBeyond32BitOffsets) {
  const View view(nullptr, DType::float32, {40'000, 100'000});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.slice(30'000, 30'001).data()), 12'000'000'000U);
}

TEST(View, KeepsItsElementsWhenReshaped) {
  std::array<float, 12> data{};
  const View view(data.data(), DType::float32, {4, 3});
  EXPECT_EQ(view.flat().shape(), Shape{12});
  EXPECT_EQ(view.reshaped({2, 6}).dim(1), 6);
  EXPECT_THROW(static_cast<void>(view.reshaped({5})), InternalError);
}

TEST(View, IsReadOnlyAsItsOwnDtype) {
  std::array<float, 1> data{};
  const View view(data.data(), DType::float32, {1});
  EXPECT_EQ(view.as<float>(), data.data());
  EXPECT_THROW(static_cast<void>(view.as<bfloat16>()), InternalError);
}

TEST(Tensor, GivesItsMemoryBackOnce) {
  cpu::CpuMemory memory(false);
  {
    Tensor a(Allocation(memory, 100, Purpose::mlp), DType::float32, {25});
    Tensor b(std::move(a));
    EXPECT_EQ(memory.live_bytes(), 128);
    b = Tensor(Allocation(memory, 64, Purpose::mlp), DType::float32, {16});
    EXPECT_EQ(memory.live_bytes(), 64);
    EXPECT_EQ(b->elements(), 16);
  }
  EXPECT_EQ(memory.live_bytes(), 0);
}

TEST(Bfloat16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(widen(round_to_bfloat16(1.0F)), 1.0F);
  EXPECT_EQ(round_to_bfloat16(1.0F + 0x1p-8F).bits, 0x3F80);             // tie, down to even
  EXPECT_EQ(round_to_bfloat16(1.0F + 0x1p-8F + 0x1p-20F).bits, 0x3F81);  // above the tie
  EXPECT_EQ(round_to_bfloat16(1.0F + 0x3p-8F).bits, 0x3F82);             // tie, up to even
  EXPECT_EQ(round_to_bfloat16(-0.0F).bits, 0x8000);
  EXPECT_EQ(round_to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);  // infinity
}

TEST(Bfloat16, KeepsNaN) {
  for (const uint32_t bits : {0x7F800001U, 0x7FFFFFFFU, 0xFFFFFFFFU, 0xFF800001U, 0x7FC00000U}) {
    EXPECT_TRUE(std::isnan(widen(round_to_bfloat16(__builtin_bit_cast(float, bits))))) << std::hex << bits;
  }
}

TEST(Narrow, RefusesWhatDoesNotFit) {
  EXPECT_EQ(narrow<int>(int64_t{2147483647}), 2147483647);
  EXPECT_THROW(narrow<int>(int64_t{2147483648}), InternalError);
  EXPECT_THROW(narrow<uint32_t>(-1), InternalError);
}

// Known answers of Random123's kat_vectors for philox4x32, 10 rounds.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox::block({}, {}), (Philox::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox::block({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Philox::Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, TakesSeedStreamSampleAndIndexApart) {
  const auto words =
      Philox::words(0x299f31d0'a4093822U, static_cast<RandomStream>(0x03707344), 0x13198a2e'85a308d3U, 0x243f6a88);
  EXPECT_EQ(words, (Philox::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace annulus
