#include <tuple>

#include "tests/kernels/product.h"

namespace annulus::testing {
namespace {

enum class Addend : uint8_t { none, itself, another };

struct Variant {
  bool transpose_a, transpose_b;
  Addend addend;
};

std::vector<Variant> every_variant() {
  std::vector<Variant> variants;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const Addend addend : {Addend::none, Addend::itself, Addend::another}) {
        variants.push_back({transpose_a, transpose_b, addend});
      }
    }
  }
  return variants;
}

void check_matmul(Device& device, const Shape& mnk, DType dtype, DType c_dtype, const Variant& variant) {
  const auto& [transpose_a, transpose_b, addend] = variant;
  SCOPED_TRACE(mnk.to_string() + ' ' + name_of(c_dtype) + (transpose_a ? " transpose_a" : "") +
               (transpose_b ? " transpose_b" : "") + " addend " + std::to_string(static_cast<int>(addend)));
  const auto [m, n, k] = std::tuple(mnk[0], mnk[1], mnk[2]);
  const Numbers nothing(static_cast<size_t>(m * n), NAN), numbers = random_numbers(m * n, 3);
  const Tensor a = tensor_of(device, matrix(m, k, transpose_a), dtype, random_numbers(m * k, 1));
  const Tensor b = tensor_of(device, matrix(k, n, transpose_b), dtype, random_numbers(k * n, 2));
  const Tensor c = tensor_of(device, {m, n}, c_dtype, addend == Addend::itself ? numbers : nothing);
  const Tensor other = tensor_of(device, {m, n}, c_dtype, numbers);
  const View added[] = {View(), c, other};
  const Matmul args{.c = c,
                    .a = a,
                    .b = b,
                    .transpose_a = transpose_a,
                    .transpose_b = transpose_b,
                    .addend = added[static_cast<size_t>(addend)]};
  const Numbers before = numbers_of(device, other);
  const Numbers expected = product(args, numbers_of(device, a), numbers_of(device, b), before);
  device.matmul(args, {});
  expect_near(device, c, expected, 1e-6);
  EXPECT_EQ(numbers_of(device, other), before);
}

TEST(Matmul, EqualsTheSumOfProductsForEveryTransposeDtypeAndOddSize) {
  const Shape sizes[] = {{1, 1, 1}, {1, 17, 101}, {17, 1, 33}, {33, 17, 1}, {3, 101, 17}, {101, 64, 48}};
  on_every_device([&](Device& device) {
    for (const Shape& size : sizes) {
      for (const Variant& variant : every_variant()) {
        check_matmul(device, size, DType::float32, DType::float32, variant);
        check_matmul(device, size, DType::bfloat16, DType::float32, variant);
        check_matmul(device, size, DType::bfloat16, DType::bfloat16, variant);
      }
    }
  });
}

// One rounding at the end, however the terms are cut; a sum kept in bfloat16 would be off by percents.
TEST(Matmul, RoundsABfloat16SumOfManyTermsOnce) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  for (const Variant& variant : every_variant())
    check_matmul(device, {3, 33, 5000}, DType::bfloat16, DType::bfloat16, variant);
}

TEST(Matmul, OfNoRowsColumnsOrTermsIsZeroOrUnchanged) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const Variant& variant : every_variant()) {
      check_matmul(device, {0, 5, 3}, dtype, dtype, variant);
      check_matmul(device, {5, 0, 3}, dtype, dtype, variant);
      check_matmul(device, {5, 3, 0}, dtype, dtype, variant);
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
  const Tensor square = tensor_of(device, {2, 2}, DType::float32, random_numbers(4, 4));
  const Tensor rounded = tensor_of(device, {2, 4}, DType::bfloat16, random_numbers(8, 5));
  for (const View& addend : {square.view(), rounded.view()}) {
    EXPECT_THROW(device.matmul({.c = c, .a = square, .b = b, .addend = addend}, {}), InternalError);
  }
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
