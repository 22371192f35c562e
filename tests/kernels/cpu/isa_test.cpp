#include "kernels/cpu/isa.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "kernels/cpu/gemm.h"
#include "kernels/error.h"

namespace annulus::cpu {
namespace {

TEST(Isa, OfThisMachineIsTheBestItHas) {
  EXPECT_TRUE(has(best_isa()));
  EXPECT_TRUE(has(Isa::v2));
  EXPECT_LE(static_cast<int>(has(Isa::v4)), static_cast<int>(has(Isa::v3)));
}

TEST(IsaBound, IsNoneUnlessTheVariableIsSet) {
  EXPECT_EQ(isa_bound_of(nullptr), IsaBound::none);
}

TEST(IsaBound, IsKnownByEachOfItsNames) {
  EXPECT_EQ(isa_bound_of("plain"), IsaBound::plain);
  EXPECT_EQ(isa_bound_of("avx2"), IsaBound::avx2);
  EXPECT_EQ(isa_bound_of("avx512"), IsaBound::avx512);
  EXPECT_EQ(isa_bound_of("avx512_bf16"), IsaBound::avx512_bf16);
}

TEST(IsaBound, IsRefusedUnderAnyOtherNameWithThoseThatExist) {
  for (const char* value : {"", "none", "AVX2", "avx2 ", "avx1024"}) {
    try {
      std::ignore = isa_bound_of(value);
      ADD_FAILURE() << '"' << value << "\" is taken";
    } catch (const ConfigurationError& error) {
      EXPECT_EQ(error.what(), "the environment variable ANNULUS_MAX_ISA is \"" + std::string(value) +
                                  "\"; set it to one of avx512_bf16, avx512, avx2, plain, or unset it to use all that "
                                  "the CPU has");
    }
  }
}

TEST(IsaBound, HoldsForLoopsAndMatrixProducts) {
  const IsaBound bound = isa_bound();
  if (bound == IsaBound::plain) {
    EXPECT_EQ(best_isa(), Isa::v2);
  } else if (bound == IsaBound::avx2) {
    EXPECT_LE(best_isa(), Isa::v3);
  }
  const bool allowed = bound == IsaBound::none || bound == IsaBound::avx512_bf16;
  EXPECT_EQ(multiplies_bfloat16(), allowed && __builtin_cpu_supports("avx512bf16") != 0);
}

}  // namespace
}  // namespace annulus::cpu
