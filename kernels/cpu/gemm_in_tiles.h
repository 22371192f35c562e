// Products of bfloat16 matrices on CPUs with AMX, by blocks packed in scratch.
//
// Ours and not oneDNN's: 2.6, the one of Debian 12, reaches a tenth of what the instructions can and ends with an
// illegal instruction on some sums of a length that is no multiple of 32 (github.com/uxlfoundation/oneDNN/issues/1661).
#pragma once

#include "kernels/cpu/gemm.h"

namespace annulus::cpu {

// Whether the CPU has AMX for bfloat16, the system lets this process use it, and isa_bound() does.
bool multiplies_in_tiles();

// As gemm_scratch_bytes and run_gemm, for bfloat16 a and b that are not empty, on `threads` threads. Every element is
// summed from its first term to its last in float32, however many threads and whatever m and n; a bfloat16 c is rounded
// once.
int64_t gemm_in_tiles_scratch_bytes(const Gemm& gemm, int threads);
void run_gemm_in_tiles(const Gemm& gemm, void* scratch, int threads);

}  // namespace annulus::cpu
