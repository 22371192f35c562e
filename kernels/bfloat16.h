// The bfloat16 number and its conversions. Both are inlined without exception, so that a file compiled for a newer
// instruction set leaves no copy of them that an older CPU could be handed.
#pragma once

#include <cstdint>

namespace annulus {

// IEEE-754 bits 16 to 31 of a float32; arithmetic happens in float32.
struct bfloat16 {
  uint16_t bits;
};

[[gnu::always_inline]] inline float widen(bfloat16 value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}

// To the nearest, ties to even. A NaN stays one, made quiet: rounding its bits could carry it to infinity.
[[gnu::always_inline]] inline bfloat16 round_to_bfloat16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40U;
  return {static_cast<uint16_t>(value != value ? quiet : rounded)};
}

}  // namespace annulus
