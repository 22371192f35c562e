// Which instruction sets of this CPU the program uses. docs/instruction_sets.md is for users.
#pragma once

#include <cstdint>

namespace annulus::cpu {

// The levels of the x86-64 psABI: SSE4.2; AVX2 with FMA; AVX-512.
enum class Isa : uint8_t { v2, v3, v4 };

// The most that our loops and oneDNN may use: `plain` is SSE4.2 at most, `none` whatever the CPU has.
enum class IsaBound : uint8_t { plain, avx2, avx512, avx512_bf16, none };

// That of the environment variable ANNULUS_MAX_ISA, read once; `none` if it is not set. Throws ConfigurationError for a
// value that does not exist.
[[nodiscard]] IsaBound isa_bound();
[[nodiscard]] IsaBound isa_bound_of(const char* value);  // the same for a value, null if not set
[[nodiscard]] const char* name_of(IsaBound bound);       // as the variable spells it

[[nodiscard]] bool has(Isa isa);  // this CPU, the system it runs, and within the bound
[[nodiscard]] Isa best_isa();     // throws EnvironmentError below v2
[[nodiscard]] const char* name_of(Isa isa);

}  // namespace annulus::cpu
