// Products of bfloat16 matrices where the CPU has no instructions for them: blocks of both are widened to float32 in
// scratch and multiplied there.
#pragma once

#include "kernels/cpu/gemm.h"

namespace annulus::cpu {

// Blocks have at most this many rows and columns: some 12 MiB of scratch for three, whatever the matrices.
inline constexpr int64_t float32_block = 1024;

// As gemm_scratch_bytes and run_gemm, for bfloat16 a and b; `threads` convert. A bfloat16 c is rounded once.
int64_t gemm_in_float32_scratch_bytes(const Gemm& gemm);
void run_gemm_in_float32(const Gemm& gemm, void* scratch, int threads);

}  // namespace annulus::cpu
