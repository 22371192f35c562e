#include "kernels/cpu/gemm.h"

#include <omp.h>

#include <cstring>
#include <tuple>

#include "kernels/cpu/device.h"
#include "kernels/cpu/gemm_in_float32.h"
#include "kernels/cpu/gemm_in_tiles.h"
#include "tests/kernels/product.h"

namespace annulus::cpu {
namespace {

using namespace annulus::testing;

// 2·2500·1024·1024 operations are more than one block: the rows are computed in parts, and progress is made between
// them.
TEST(Matmul, MakesProgressBetweenBlocksOfRowsAndComputesThemAll) {
  constexpr int64_t m = 2500;
  constexpr int64_t nk = 1024;
  CpuDevice device({.threads = 2, .poison = true}, best_isa());
  int calls = 0;
  device.set_progress([&] { ++calls; });
  for (const bool transpose_a : {false, true}) {
    const Tensor a = tensor_of(device, matrix(m, nk, transpose_a), DType::float32, random_numbers(m * nk, 1));
    Numbers identity(static_cast<size_t>(nk * nk));
    for (size_t i = 0; i < static_cast<size_t>(nk); ++i) identity[i * nk + i] = 2;
    const Tensor b = tensor_of(device, {nk, nk}, DType::float32, identity);
    const Tensor c = device.allocate({m, nk}, DType::float32, Purpose::workspace);
    calls = 0;
    device.matmul({.c = c, .a = a, .b = b, .transpose_a = transpose_a}, {});
    EXPECT_GE(calls, 3);
    const Numbers factors = numbers_of(device, a);
    Numbers expected(static_cast<size_t>(m * nk));
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < nk; ++j) {
        expected[i * nk + j] = 2 * factors[transpose_a ? j * m + i : i * nk + j];
      }
    }
    EXPECT_EQ(numbers_of(device, c), expected);
  }
}

// A way to compute a product of bfloat16 matrices.
struct Route {
  int64_t (*scratch_bytes)(const Gemm& gemm);
  void (*run)(const Gemm& gemm, void* scratch, int threads);
};

// What a CPU without bfloat16 instructions runs, tested on every CPU.
constexpr Route in_float32{.scratch_bytes = gemm_in_float32_scratch_bytes, .run = run_gemm_in_float32};
constexpr Route of_this_cpu{.scratch_bytes = gemm_scratch_bytes,
                            .run = [](const Gemm& gemm, void* scratch, int /*threads*/) { run_gemm(gemm, scratch); }};

// With matrices wider than what is multiplied, and NaN in the scratch.
void check_bfloat16(const Route& route, int threads, const Shape& mnk, DType c_dtype, int flags) {
  constexpr int64_t pad = 2;
  CpuDevice device({.threads = threads, .poison = true}, best_isa());
  const bool transpose_a = (flags & 1) != 0;
  const bool transpose_b = (flags & 2) != 0;
  const bool accumulate = (flags & 4) != 0;
  SCOPED_TRACE(mnk.to_string() + ' ' + name_of(c_dtype) + " flags " + std::to_string(flags));
  const auto [m, n, k] = std::tuple(mnk[0], mnk[1], mnk[2]);
  const Shape a_shape = matrix(m, k, transpose_a);
  const Shape b_shape = matrix(k, n, transpose_b);
  // The first columns of a wider matrix.
  const auto wide = [&](const Shape& shape, DType dtype, const Numbers& numbers) {
    Numbers padded;
    for (int64_t i = 0; i < shape[0] * (shape[1] + pad); ++i) {
      const int64_t row = i / (shape[1] + pad), column = i % (shape[1] + pad);
      padded.push_back(column < shape[1] ? numbers[static_cast<size_t>(row * shape[1] + column)] : 1e30);
    }
    return tensor_of(device, {shape[0], shape[1] + pad}, dtype, padded);
  };
  const auto dense = [&](const Shape& shape, DType dtype, const Numbers& numbers) {
    return tensor_of(device, shape, dtype, numbers);
  };
  const Numbers c_numbers = accumulate ? random_numbers(m * n, 3) : Numbers(static_cast<size_t>(m * n), NAN);
  const Tensor a = dense(a_shape, DType::bfloat16, random_numbers(m * k, 1));
  const Tensor b = dense(b_shape, DType::bfloat16, random_numbers(k * n, 2));
  const Tensor c = dense({m, n}, c_dtype, c_numbers);
  const Tensor wide_a = wide(a_shape, DType::bfloat16, numbers_of(device, a));
  const Tensor wide_b = wide(b_shape, DType::bfloat16, numbers_of(device, b));
  const Tensor wide_c = wide({m, n}, c_dtype, c_numbers);
  const Matmul args{.c = c,
                    .a = a,
                    .b = b,
                    .transpose_a = transpose_a,
                    .transpose_b = transpose_b,
                    .addend = accumulate ? c.view() : View()};
  const Numbers expected = product(args, numbers_of(device, a), numbers_of(device, b), numbers_of(device, c));

  omp_set_num_threads(threads);
  const Gemm gemm{.m = m,
                  .n = n,
                  .k = k,
                  .c = wide_c->data(),
                  .a = wide_a->data(),
                  .b = wide_b->data(),
                  .ldc = n + pad,
                  .lda = a_shape[1] + pad,
                  .ldb = b_shape[1] + pad,
                  .c_dtype = c_dtype,
                  .dtype = DType::bfloat16,
                  .transpose_a = transpose_a,
                  .transpose_b = transpose_b,
                  .accumulate = accumulate};
  const Allocation scratch(device.memory(), route.scratch_bytes(gemm), Purpose::workspace);
  route.run(gemm, scratch.data(), threads);
  for (int64_t row = 0; row < m; ++row) {
    const int64_t bytes = n * size_of(c_dtype);
    std::memcpy(static_cast<char*>(c->data()) + row * bytes, wide_c->slice(row, row + 1).data(),
                static_cast<size_t>(bytes));
    for (int64_t column = n; column < n + pad; ++column) {
      EXPECT_NEAR(numbers_of(device, wide_c->slice(row, row + 1))[static_cast<size_t>(column)], 1e30, 1e28);
    }
  }
  expect_near(device, c, expected, 1e-6);
}

TEST(GemmInFloat32, EqualsTheSumOfProductsWithinABlockAndAcrossBlocks) {
  constexpr int64_t over = float32_block + 6;
  const Shape sizes[] = {{1, 1, 1}, {33, 17, 101}, {over, 3, 5}, {3, over, 5}, {3, 5, 2 * over}};
  for (const int threads : {1, 3}) {
    for (const Shape& size : sizes) {
      for (int flags = 0; flags < 8; ++flags) {
        check_bfloat16(in_float32, threads, size, DType::float32, flags);
        check_bfloat16(in_float32, threads, size, DType::bfloat16, flags);
      }
    }
  }
}

// Sums of lengths that fill no register, and the sizes around a panel and a block: oneDNN 2.6 ended with an illegal
// instruction on (63, 13, 76) and its like.
TEST(Gemm, EqualsTheSumOfProductsInBfloat16ForAnySize) {
  const Shape sizes[] = {{1, 1, 1},    {1, 80, 63},  {63, 13, 76}, {76, 63, 13}, {13, 76, 63}, {33, 17, 101},
                         {64, 96, 32}, {32, 32, 33}, {31, 65, 34}, {518, 3, 5},  {3, 518, 5},  {3, 5, 518},
                         {5, 7, 1025}, {130, 66, 7}, {16, 48, 2},  {96, 32, 520}};
  for (const int threads : {1, 3}) {
    for (const Shape& size : sizes) {
      for (int flags = 0; flags < 8; ++flags) {
        check_bfloat16(of_this_cpu, threads, size, DType::float32, flags);
        check_bfloat16(of_this_cpu, threads, size, DType::bfloat16, flags);
      }
    }
  }
}

// Only three blocks exist in float32, however large the matrices; what oneDNN wants is small beside them.
TEST(GemmInFloat32, NeedsTheScratchOfThreeBlocksForAnyMatrices) {
  const auto scratch_bytes = [](int64_t size) {
    return gemm_in_float32_scratch_bytes({.m = size,
                                          .n = size,
                                          .k = size,
                                          .ldc = size,
                                          .lda = size,
                                          .ldb = size,
                                          .c_dtype = DType::bfloat16,
                                          .dtype = DType::bfloat16});
  };
  constexpr int64_t three_blocks = 3 * float32_block * float32_block * 4;
  EXPECT_GE(scratch_bytes(2 * float32_block), three_blocks);
  EXPECT_LE(scratch_bytes(2 * float32_block), three_blocks * 4 / 3);
  EXPECT_EQ(scratch_bytes(32 * float32_block), scratch_bytes(2 * float32_block));
}

// As attention uses it: slices of wider matrices, many threads at once, scratch asked for outside.
TEST(Gemm, ReadsAndWritesSlicesOfWiderMatricesInsideAParallelRegion) {
  constexpr int64_t m = 19, n = 23, k = 16, heads = 3;
  CpuDevice device({.threads = 3, .poison = true}, best_isa());
  const Tensor a = tensor_of(device, {m, heads, k}, DType::bfloat16, random_numbers(m * heads * k, 1));
  const Tensor b = tensor_of(device, {n, heads, k}, DType::bfloat16, random_numbers(n * heads * k, 2));
  const Tensor c = tensor_of(device, {heads, m, n + 2}, DType::float32, Numbers(heads * m * (n + 2), 7));
  const auto gemm_of_head = [&](int64_t head) {
    return Gemm{.m = m,
                .n = n,
                .k = k,
                .c = c->as<float>() + head * m * (n + 2),
                .a = a->as<bfloat16>() + head * k,
                .b = b->as<bfloat16>() + head * k,
                .ldc = n + 2,
                .lda = heads * k,
                .ldb = heads * k,
                .dtype = DType::bfloat16,
                .transpose_b = true};
  };
  omp_set_num_threads(3);
  const int64_t scratch_bytes = gemm_scratch_bytes(gemm_of_head(0));
  const Tensor scratch = device.allocate({heads, scratch_bytes / 64 + 1, 16}, DType::float32, Purpose::workspace);
#pragma omp parallel for num_threads(3)
  for (int64_t head = 0; head < heads; ++head) run_gemm(gemm_of_head(head), scratch->slice(head, head + 1).data());

  const Numbers queries = numbers_of(device, a);
  const Numbers keys = numbers_of(device, b);
  Numbers expected(heads * m * (n + 2), 7);
  for (size_t h = 0; h < heads; ++h) {
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (size_t l = 0; l < k; ++l) sum += queries[(i * heads + h) * k + l] * keys[(j * heads + h) * k + l];
        expected[(h * m + i) * (n + 2) + j] = sum;
      }
    }
  }
  expect_near(device, c, expected, 1e-6);
}

}  // namespace
}  // namespace annulus::cpu
