// Matrix products on host memory with leading dimensions, through oneDNN. Primitives are cached by everything that
// distinguishes them, so that a repeated shape costs a lookup. Products of bfloat16 matrices are our own on a CPU with
// AMX (gemm_in_tiles.h), and computed in float32, by blocks, on one that has no instructions for them
// (gemm_in_float32.h).
#pragma once

#include <cstdint>
#include <string>

#include "kernels/tensor.h"

namespace annulus::cpu {

// C = op(A)·op(B), or C += op(A)·op(B); row-major, ld* are elements between rows as stored.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;         // C is (m, n), op(A) is (m, k), op(B) is (k, n)
  void* c = nullptr;
  const void* a = nullptr;             // (m, k), or (k, m) if transposed
  const void* b = nullptr;             // (k, n), or (n, k) if transposed
  int64_t ldc = 0, lda = 0, ldb = 0;
  DType c_dtype = DType::float32;      // that of a and b, or float32
  DType dtype = DType::float32;        // of a and b: float32 or bfloat16
  bool transpose_a = false, transpose_b = false, accumulate = false;
};

// Bytes of scratch this product wants, on the threads of the calling thread's OpenMP setting and on one alone, so that it
// can be asked before a parallel region and used inside. The same for every call of the same shape. Throws EnvironmentError
// where oneDNN cannot compute the product on this CPU.
int64_t gemm_scratch_bytes(const Gemm& gemm);

// Uses the threads of the calling thread's OpenMP setting; one thread inside a parallel region. Sums in float32. The memory
// of `scratch` (64-byte aligned) belongs to the call.
void run_gemm(const Gemm& gemm, void* scratch);

std::string gemm_library();  // "oneDNN 2.6.3"

// Whether there are instructions for bfloat16 products, on this CPU and within isa_bound().
bool multiplies_bfloat16();

}  // namespace annulus::cpu
