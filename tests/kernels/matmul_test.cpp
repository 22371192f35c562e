#include <tuple>

#include "tests/kernels/devices.h"

namespace annulus::testing {
namespace {

// Op(A)·op(B) in float64, plus c where accumulated; stored matrices are dense.
Numbers product(const Matmul& args, const Numbers& a, const Numbers& b, const Numbers& c) {
  const int64_t m = args.c.dim(0);
  const int64_t n = args.c.dim(1);
  const int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  Numbers result(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = args.accumulate ? c[static_cast<size_t>(i * n + j)] : 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += a[static_cast<size_t>(args.transpose_a ? l * m + i : i * k + l)] *
               b[static_cast<size_t>(args.transpose_b ? j * k + l : l * n + j)];
      }
      result[static_cast<size_t>(i * n + j)] = sum;
    }
  }
  return result;
}

Shape matrix(int64_t rows, int64_t columns, bool transposed) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

void check_matmul(Device& device, const Shape& mnk, DType dtype, DType c_dtype, int flags) {
  const bool transpose_a = (flags & 1) != 0;
  const bool transpose_b = (flags & 2) != 0;
  const bool accumulate = (flags & 4) != 0;
  SCOPED_TRACE(mnk.to_string() + ' ' + name_of(c_dtype) + " flags " + std::to_string(flags));
  const auto [m, n, k] = std::tuple(mnk[0], mnk[1], mnk[2]);
  const Tensor a = tensor_of(device, matrix(m, k, transpose_a), dtype, random_numbers(m * k, 1));
  const Tensor b = tensor_of(device, matrix(k, n, transpose_b), dtype, random_numbers(k * n, 2));
  const Tensor c = tensor_of(device, {m, n}, c_dtype,
                             accumulate ? random_numbers(m * n, 3) : Numbers(static_cast<size_t>(m * n), NAN));
  const Matmul args{
      .c = c, .a = a, .b = b, .transpose_a = transpose_a, .transpose_b = transpose_b, .accumulate = accumulate};
  const Numbers expected = product(args, numbers_of(device, a), numbers_of(device, b), numbers_of(device, c));
  device.matmul(args, {});
  expect_near(device, c, expected, 1e-6);
}

TEST(Matmul, EqualsTheSumOfProductsForEveryTransposeDtypeAndOddSize) {
  const Shape sizes[] = {{1, 1, 1}, {1, 17, 101}, {17, 1, 33}, {33, 17, 1}, {3, 101, 17}, {101, 64, 48}};
  on_every_device([&](Device& device) {
    for (const Shape& size : sizes) {
      for (int flags = 0; flags < 8; ++flags) {
        check_matmul(device, size, DType::float32, DType::float32, flags);
        check_matmul(device, size, DType::bfloat16, DType::float32, flags);
        check_matmul(device, size, DType::bfloat16, DType::bfloat16, flags);
      }
    }
  });
}

// One rounding at the end, however the terms are cut; a sum kept in bfloat16 would be off by percents.
TEST(Matmul, RoundsABfloat16SumOfManyTermsOnce) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  for (int flags = 0; flags < 8; ++flags) check_matmul(device, {3, 33, 5000}, DType::bfloat16, DType::bfloat16, flags);
}

TEST(Matmul, OfNoRowsColumnsOrTermsIsZeroOrUnchanged) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (int flags = 0; flags < 8; ++flags) {
      check_matmul(device, {0, 5, 3}, dtype, dtype, flags);
      check_matmul(device, {5, 0, 3}, dtype, dtype, flags);
      check_matmul(device, {5, 3, 0}, dtype, dtype, flags);
    }
  }
}

TEST(Matmul, RefusesShapesThatDoNotFit) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  const Tensor a = tensor_of(device, {2, 3}, DType::float32, random_numbers(6, 1));
  const Tensor b = tensor_of(device, {2, 4}, DType::float32, random_numbers(8, 2));
  const Tensor c = tensor_of(device, {2, 4}, DType::float32, random_numbers(8, 3));
  EXPECT_THROW(device.matmul({.c = c, .a = a, .b = b}, {}), InternalError);
}

TEST(Matmul, RepeatsItselfToTheBit) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  const Tensor a = tensor_of(device, {101, 517}, DType::bfloat16, random_numbers(101 * 517, 1));
  const Tensor b = tensor_of(device, {517, 65}, DType::bfloat16, random_numbers(517 * 65, 2));
  const Tensor first = device.allocate({101, 65}, DType::float32, Purpose::workspace);
  const Tensor again = device.allocate({101, 65}, DType::float32, Purpose::workspace);
  device.matmul({.c = first, .a = a, .b = b}, {});
  for (int i = 0; i < 5; ++i) {
    device.matmul({.c = again, .a = a, .b = b}, {});
    expect_same_bits(device, first, again);
  }
}

}  // namespace
}  // namespace annulus::testing
