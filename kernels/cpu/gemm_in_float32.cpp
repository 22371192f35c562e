#include "kernels/cpu/gemm_in_float32.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/vector.h"

namespace annulus::cpu {
namespace {

struct Range {
  int64_t begin, size;
};

// What is multiplied at once: c(rows, columns) += op(a)(rows, terms)·op(b)(terms, columns).
struct Part {
  Range rows, columns, terms;
};

// body(part) for all of a product; the parts that add to one block of c follow each other.
template <class Body>
void for_each_part(const Gemm& gemm, const Body& body) {
  const auto range = [](int64_t begin, int64_t end) { return Range{begin, std::min(float32_block, end - begin)}; };
  for (int64_t row = 0; row < gemm.m; row += float32_block) {
    for (int64_t column = 0; column < gemm.n; column += float32_block) {
      for (int64_t term = 0; term < gemm.k; term += float32_block) {
        body(Part{range(row, gemm.m), range(column, gemm.n), range(term, gemm.k)});
      }
    }
  }
}

// A block of a matrix as it is stored: where it begins and how large it is.
struct Block {
  int64_t offset, rows, columns, ld;
};

Block block_of(int64_t ld, bool transposed, Range rows, Range columns) {
  if (transposed) std::swap(rows, columns);
  return {rows.begin * ld + columns.begin, rows.size, columns.size, ld};
}

// Elements between the rows of a block in scratch. Rows 1024 floats apart share so few cache sets that oneDNN's AVX2
// product halves its speed.
int64_t stride_of(int64_t columns) {
  const int64_t stride = round_up(columns, 16);
  return stride % 256 == 0 ? stride + 16 : stride;
}

void widen(float* to, int64_t to_ld, const void* matrix, const Block& block, int threads) {
  const VectorMath& math = vector_math(best_isa());
  const auto* const from = static_cast<const bfloat16*>(matrix) + block.offset;
  parallel_for(threads, block.rows, [&](int64_t i) { math.widen(to + i * to_ld, from + i * block.ld, block.columns); });
}

void round(void* matrix, const Block& block, const float* from, int64_t from_ld, int threads) {
  const VectorMath& math = vector_math(best_isa());
  auto* const to = static_cast<bfloat16*>(matrix) + block.offset;
  parallel_for(threads, block.rows,
               [&](int64_t i) { math.round(to + i * block.ld, from + i * from_ld, block.columns); });
}

// The blocks of one part in float32, then what its product wants.
struct Scratch {
  Scratch(const Gemm& gemm, void* memory) {
    const int64_t m = std::min(gemm.m, float32_block);
    const int64_t n = std::min(gemm.n, float32_block);
    const int64_t k = std::min(gemm.k, float32_block);
    const auto take = [&](int64_t elements) {
      auto* const taken = memory == nullptr ? nullptr : static_cast<char*>(memory) + bytes;
      bytes += round_up(elements * size_of(DType::float32), 64);
      return reinterpret_cast<float*>(taken);
    };
    a = take(gemm.transpose_a ? k * stride_of(m) : m * stride_of(k));
    b = take(gemm.transpose_b ? n * stride_of(k) : k * stride_of(n));
    c = take(gemm.c_dtype == DType::bfloat16 ? m * stride_of(n) : 0);
    product = take(0);
  }

  float *a, *b, *c;
  void* product;
  int64_t bytes = 0;  // before product
};

// A float32 c is added to where it is, a bfloat16 one in scratch.
Gemm product_of(const Gemm& gemm, const Part& part, const Scratch& scratch) {
  const bool in_place = gemm.c_dtype == DType::float32;
  const int64_t c_offset = block_of(gemm.ldc, false, part.rows, part.columns).offset;
  return {.m = part.rows.size,
          .n = part.columns.size,
          .k = part.terms.size,
          .c = in_place ? static_cast<float*>(gemm.c) + c_offset : scratch.c,
          .a = scratch.a,
          .b = scratch.b,
          .ldc = in_place ? gemm.ldc : stride_of(part.columns.size),
          .lda = stride_of(gemm.transpose_a ? part.rows.size : part.terms.size),
          .ldb = stride_of(gemm.transpose_b ? part.terms.size : part.columns.size),
          .transpose_a = gemm.transpose_a,
          .transpose_b = gemm.transpose_b,
          .accumulate = gemm.accumulate || part.terms.begin > 0};
}

}  // namespace

int64_t gemm_in_float32_scratch_bytes(const Gemm& gemm) {
  const Scratch scratch(gemm, nullptr);
  int64_t most = 0;
  for_each_part(gemm,
                [&](const Part& part) { most = std::max(most, gemm_scratch_bytes(product_of(gemm, part, scratch))); });
  return scratch.bytes + most;
}

void run_gemm_in_float32(const Gemm& gemm, void* memory, int threads) {
  const Scratch scratch(gemm, memory);
  const bool rounded = gemm.c_dtype == DType::bfloat16;
  for_each_part(gemm, [&](const Part& part) {
    const Block a = block_of(gemm.lda, gemm.transpose_a, part.rows, part.terms);
    const Block b = block_of(gemm.ldb, gemm.transpose_b, part.terms, part.columns);
    const Block c = block_of(gemm.ldc, false, part.rows, part.columns);
    const bool first = part.terms.begin == 0;
    const bool last = part.terms.begin + part.terms.size == gemm.k;
    const Gemm product = product_of(gemm, part, scratch);
    widen(scratch.a, product.lda, gemm.a, a, threads);
    widen(scratch.b, product.ldb, gemm.b, b, threads);
    if (rounded && first && gemm.accumulate) widen(scratch.c, product.ldc, gemm.c, c, threads);
    run_gemm(product, scratch.product);
    if (rounded && last) round(gemm.c, c, scratch.c, product.ldc, threads);
  });
}

}  // namespace annulus::cpu
