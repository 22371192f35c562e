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

bool has(Isa isa) {
  const bool v2 = __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("popcnt") != 0;
  if (isa == Isa::v2) return v2;
  const bool v3 = v2 && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                  __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0;
  if (isa == Isa::v3) return v3;
  return v3 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
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
