#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/cpu/vector.h"
#include "kernels/error.h"

namespace annulus::cpu {

// Each defined in one of the compilations of vector.cpp.
extern const VectorMath vector_math_v2;
extern const VectorMath vector_math_v3;
extern const VectorMath vector_math_v4;

const VectorMath& vector_math(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return vector_math_v2;
    case Isa::v3:
      return vector_math_v3;
    case Isa::v4:
      return vector_math_v4;
  }
  throw InternalError("an instruction set that does not exist");
}

namespace {

constexpr const char* variable = "ANNULUS_MAX_ISA";

bool cpu_has(Isa isa) {
  const bool v2 = __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("popcnt") != 0;
  if (isa == Isa::v2) return v2;
  const bool v3 = v2 && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                  __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0;
  if (isa == Isa::v3) return v3;
  return v3 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

Isa highest_within(IsaBound bound) {
  switch (bound) {
    case IsaBound::plain:
      return Isa::v2;
    case IsaBound::avx2:
      return Isa::v3;
    case IsaBound::avx512:
    case IsaBound::avx512_bf16:  // which only matrix products use
    case IsaBound::none:
      return Isa::v4;
  }
  throw InternalError("a bound on instruction sets that does not exist");
}

}  // namespace

IsaBound isa_bound_of(const char* value) {
  if (value == nullptr) return IsaBound::none;
  std::string names;
  for (const IsaBound bound : {IsaBound::avx512_bf16, IsaBound::avx512, IsaBound::avx2, IsaBound::plain}) {
    if (std::string_view(value) == name_of(bound)) return bound;
    names += (names.empty() ? "" : ", ") + std::string(name_of(bound));
  }
  throw ConfigurationError("the environment variable " + std::string(variable) + " is \"" + value +
                           "\"; set it to one of " + names + ", or unset it to use all that the CPU has");
}

IsaBound isa_bound() {
  static const IsaBound bound = isa_bound_of(std::getenv(variable));
  return bound;
}

const char* name_of(IsaBound bound) {
  switch (bound) {
    case IsaBound::plain:
      return "plain";
    case IsaBound::avx2:
      return "avx2";
    case IsaBound::avx512:
      return "avx512";
    case IsaBound::avx512_bf16:
      return "avx512_bf16";
    case IsaBound::none:
      return "none";
  }
  throw InternalError("a bound on instruction sets that does not exist");
}

bool has(Isa isa) {
  return isa <= highest_within(isa_bound()) && cpu_has(isa);
}

Isa best_isa() {
  for (const Isa isa : {Isa::v4, Isa::v3, Isa::v2}) {
    if (has(isa)) return isa;
  }
  throw EnvironmentError("this CPU lacks SSE4.2; Annulus needs an x86-64 CPU that has it");
}

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return "SSE4.2";
    case Isa::v3:
      return "AVX2";
    case Isa::v4:
      return "AVX-512";
  }
  throw InternalError("an instruction set that does not exist");
}

}  // namespace annulus::cpu
