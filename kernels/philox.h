// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011, section 3.2). A number is a function of seed, stream, sample and index, never of who asks or in what order.
#pragma once

#include <array>
#include <cstdint>

namespace annulus {

// What a sequence of numbers is for. Two uses never share a stream.
enum class RandomStream : uint32_t { initialization = 16, shuffle = 17 };

struct Philox {
  using Words = std::array<uint32_t, 4>;

  // Ten rounds on `counter` under `key`.
  static constexpr Words block(Words counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
      counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
                 static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    return counter;
  }

  static constexpr Words words(uint64_t seed, RandomStream stream, uint64_t sample, uint32_t index) {
    return block({index, static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32), static_cast<uint32_t>(stream)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
};

static_assert(Philox::block({}, {}) == Philox::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});

}  // namespace annulus
