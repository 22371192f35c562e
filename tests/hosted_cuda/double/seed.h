// Chance, decided by the seed of the schedule alone.
#pragma once

#include <cstdint>

namespace annulus::hosted {

// The schedule's seed: ANNULUS_HOSTED_SEED, unless set_seed() was called. With 0 nothing is left to chance.
uint64_t seed();

// A number that looks random (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
constexpr uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9E3779B97F4A7C15ULL + b + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace annulus::hosted
