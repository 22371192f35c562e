#include <map>

#include "tests/kernels/devices.h"

namespace annulus::testing {
namespace {

constexpr double eps = 1e-6;

double inverse_rms(const Numbers& x, size_t begin, size_t width) {
  double squares = 0;
  for (size_t i = begin; i < begin + width; ++i) squares += x[i] * x[i];
  return 1 / std::sqrt(squares / static_cast<double>(width) + eps);
}

Numbers rms_norm(const Numbers& x, const Numbers& weight) {
  const size_t width = weight.size();
  Numbers y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * inverse_rms(x, i - i % width, width) * weight[i % width];
  return y;
}

Numbers inverse_rms_of_rows(const Numbers& x, size_t width) {
  Numbers result;
  for (size_t begin = 0; begin < x.size(); begin += width) result.push_back(inverse_rms(x, begin, width));
  return result;
}

TEST(RmsNorm, DividesEachRowByItsRootMeanSquare) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    for (const int64_t width : {1, 3, 17, 101, 1024}) {
      const Tensor input = tensor_of(device, {5, width}, dtype, random_numbers(5 * width, 1));
      const Tensor weight = tensor_of(device, {width}, dtype, random_numbers(width, 2, 1));
      const Tensor output = device.allocate({5, width}, dtype, Purpose::workspace);
      const Tensor rstd = device.allocate({5}, DType::float32, Purpose::workspace);
      device.rms_norm_forward({.output = output, .rstd = rstd, .input = input, .weight = weight}, {});
      expect_near(device, output, rms_norm(numbers_of(device, input), numbers_of(device, weight)), 1e-6);
      expect_near(device, rstd, inverse_rms_of_rows(numbers_of(device, input), static_cast<size_t>(width)), 1e-6);
    }
  });
}

TEST(RmsNorm, OfZerosIsZero) {
  on_every_device([](Device& device) {
    const Tensor input = tensor_of(device, {1, 8}, DType::float32, Numbers(8, 0));
    const Tensor weight = tensor_of(device, {8}, DType::float32, Numbers(8, 1));
    const Tensor output = device.allocate({1, 8}, DType::float32, Purpose::staging);
    const Tensor rstd = device.allocate({1}, DType::float32, Purpose::staging);
    device.rms_norm_forward({.output = output, .rstd = rstd, .input = input, .weight = weight}, {});
    EXPECT_EQ(numbers_of(device, output), Numbers(8, 0));
    EXPECT_NEAR(number_of(device, rstd), 1000, 0.01);
  });
}

void check_rms_norm_backward(Device& device, DType dtype, DType above_dtype, int64_t width) {
  constexpr int64_t rows = 3;
  const Tensor input = tensor_of(device, {rows, width}, dtype, random_numbers(rows * width, 1, 0.5));
  const Tensor weight = tensor_of(device, {width}, dtype, random_numbers(width, 2, 1));
  const Tensor above = tensor_of(device, {rows, width}, above_dtype, random_numbers(rows * width, 3));
  const Numbers x = numbers_of(device, input);
  const Numbers w = numbers_of(device, weight);
  const Numbers dy = numbers_of(device, above);
  const Tensor rstd = tensor_of(device, {rows}, DType::float32, inverse_rms_of_rows(x, static_cast<size_t>(width)));
  const Tensor dx = tensor_of(device, {rows, width}, dtype, random_numbers(rows * width, 4));
  const Tensor dw = tensor_of(device, {width}, DType::float32, random_numbers(width, 5));
  const Numbers expected_dx =
      plus(numbers_of(device, dx), derivative([&](const Numbers& at) { return dot(dy, rms_norm(at, w)); }, x));
  const Numbers expected_dw =
      plus(numbers_of(device, dw), derivative([&](const Numbers& at) { return dot(dy, rms_norm(x, at)); }, w));
  device.rms_norm_backward({.input_gradient = dx,
                            .weight_gradient = dw,
                            .output_gradient = above,
                            .input = input,
                            .rstd = rstd,
                            .weight = weight},
                           {});
  expect_near(device, dx, expected_dx, 2e-6);
  expect_near(device, dw, expected_dw, 2e-6);
}

TEST(RmsNorm, AddsTheGradientOfFiniteDifferences) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    for (const int64_t width : {1, 3, 17, 101}) check_rms_norm_backward(device, dtype, dtype, width);
  });
}

// A weight's gradient is float32 in both dtypes, so it shows whether a digit of the output's gradient is lost.
TEST(RmsNorm, TakesTheOutputsGradientInFloat32WhateverTheDtype) {
  on_every_device([](Device& device) {
    for (const int64_t width : {1, 3, 17, 101}) {
      check_rms_norm_backward(device, DType::bfloat16, DType::float32, width);
    }
  });
}

// Weight gradients add up over many rows: in blocks, so they lose no digits, and on the CPU they do not depend on the
// threads.
TEST(RmsNorm, SumsTheWeightGradientOfManyRowsExactlyEnough) {
  constexpr int64_t rows = 20'011;
  constexpr int64_t width = 5;
  const Numbers x = random_numbers(rows * width, 1);
  const Numbers dy = random_numbers(rows * width, 2, 1);
  std::map<std::string, Numbers> results;  // by kind of device
  for (const DeviceSetup& setup : device_setups()) {
    SCOPED_TRACE(setup.name);
    const std::unique_ptr<Device> owner = setup.make();
    Device& device = *owner;
    const Tensor input = tensor_of(device, {rows, width}, DType::float32, x);
    const Tensor above = tensor_of(device, {rows, width}, DType::float32, dy);
    const Tensor weight = tensor_of(device, {width}, DType::float32, Numbers(width, 1));
    const Tensor rstd = tensor_of(device, {rows}, DType::float32, Numbers(rows, 1));
    const Tensor dx = tensor_of(device, {rows, width}, DType::float32, Numbers(rows * width, 0));
    const Tensor dw = tensor_of(device, {width}, DType::float32, Numbers(width, 0));
    device.rms_norm_backward({.input_gradient = dx,
                              .weight_gradient = dw,
                              .output_gradient = above,
                              .input = input,
                              .rstd = rstd,
                              .weight = weight},
                             {});
    Numbers expected(width);
    const Numbers x32 = numbers_of(device, input);
    const Numbers dy32 = numbers_of(device, above);
    for (size_t i = 0; i < x32.size(); ++i) expected[i % width] += x32[i] * dy32[i];
    expect_near(device, dw, expected, 2e-7);
    const std::string kind = setup.name.substr(0, setup.name.find(','));
    EXPECT_EQ(numbers_of(device, dw), results.try_emplace(kind, numbers_of(device, dw)).first->second);
  }
}

TEST(RotaryAngles, AreRightAtPositionOneMillion) {
  on_every_device([](Device& device) {
    constexpr size_t half = 64;
    const Numbers positions = {0, 257, 15'962, 131'071, 1'000'000};
    const Tensor position = tensor_of(device, {5}, DType::int32, positions);
    const Tensor cosine = device.allocate({5, half}, DType::float32, Purpose::workspace);
    const Tensor sine = device.allocate({5, half}, DType::float32, Purpose::workspace);
    for (const double theta : {10'000.0, 1'000'000.0}) {
      device.rotary_angles(cosine, sine, position, theta, {});
      Numbers cosines;
      Numbers sines;
      for (const double p : positions) {
        for (size_t i = 0; i < half; ++i) {
          // In extended precision: an independent way to the same angle.
          const long double angle =
              p * std::exp(-2.0L * static_cast<long double>(i) / 128.0L * std::log(static_cast<long double>(theta)));
          cosines.push_back(static_cast<double>(std::cos(angle)));
          sines.push_back(static_cast<double>(std::sin(angle)));
        }
      }
      expect_near(device, cosine, cosines, 1e-7);
      expect_near(device, sine, sines, 1e-7);
    }
  });
}

constexpr size_t rows = 3;
constexpr size_t heads = 2;

struct Angles {
  Numbers cosine, sine;  // (rows, head_dim/2)
};

Angles angles(int64_t head_dim) {
  Angles result;
  for (const double angle : random_numbers(static_cast<int64_t>(rows) * head_dim / 2, 9)) {
    result.cosine.push_back(static_cast<float>(std::cos(3 * angle)));
    result.sine.push_back(static_cast<float>(std::sin(3 * angle)));
  }
  return result;
}

Numbers head_norm_rotary(const Numbers& x, const Numbers& weight, const Angles& angles) {
  const size_t head_dim = weight.size();
  const size_t half = head_dim / 2;
  const Numbers normalised = rms_norm(x, weight);
  Numbers y(x.size());
  for (size_t head = 0; head < rows * heads; ++head) {
    for (size_t i = 0; i < half; ++i) {
      const double a = normalised[head * head_dim + i];
      const double b = normalised[head * head_dim + i + half];
      const double c = angles.cosine[head / heads * half + i];
      const double s = angles.sine[head / heads * half + i];
      y[head * head_dim + i] = a * c - b * s;
      y[head * head_dim + i + half] = b * c + a * s;
    }
  }
  return y;
}

// Everything but the gradients, for heads of one size.
struct HeadNormInputs {
  HeadNormInputs(Device& device, DType dtype, int64_t head_dim)
      : rotation(angles(head_dim)),
        shape{rows, heads, head_dim},
        cosine(tensor_of(device, {rows, head_dim / 2}, DType::float32, rotation.cosine)),
        sine(tensor_of(device, {rows, head_dim / 2}, DType::float32, rotation.sine)),
        input(tensor_of(device, shape, dtype, random_numbers(shape.elements(), 1))),
        weight(tensor_of(device, {head_dim}, dtype, random_numbers(head_dim, 2, 1))),
        x(numbers_of(device, input)),
        w(numbers_of(device, weight)) {}

  Angles rotation;
  Shape shape;
  Tensor cosine, sine, input, weight;
  Numbers x, w;
};

constexpr int64_t head_dims[] = {2, 6, 70};

TEST(HeadNormRotary, NormalisesEachHeadThenRotatesItByTheAnglesOfItsRow) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    for (const int64_t head_dim : head_dims) {
      const HeadNormInputs in(device, dtype, head_dim);
      const Tensor output = device.allocate(in.shape, dtype, Purpose::workspace);
      const Tensor rstd = device.allocate({rows, heads}, DType::float32, Purpose::workspace);
      device.head_norm_rotary_forward({.output = output,
                                       .rstd = rstd,
                                       .input = in.input,
                                       .weight = in.weight,
                                       .cosine = in.cosine,
                                       .sine = in.sine},
                                      {});
      expect_near(device, output, head_norm_rotary(in.x, in.w, in.rotation), 1e-6);
      expect_near(device, rstd, inverse_rms_of_rows(in.x, in.w.size()), 1e-6);
    }
  });
}

TEST(HeadNormRotary, HasTheGradientOfFiniteDifferences) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    for (const int64_t head_dim : head_dims) {
      const HeadNormInputs in(device, dtype, head_dim);
      const Tensor above = tensor_of(device, in.shape, DType::float32, random_numbers(in.shape.elements(), 3));
      const Tensor rstd = tensor_of(device, {rows, heads}, DType::float32, inverse_rms_of_rows(in.x, in.w.size()));
      const Tensor dx = device.allocate(in.shape, dtype, Purpose::workspace);
      const Tensor dw = tensor_of(device, {head_dim}, DType::float32, random_numbers(head_dim, 5));
      const auto loss = [&, dy = numbers_of(device, above)](const Numbers& x, const Numbers& w) {
        return dot(dy, head_norm_rotary(x, w, in.rotation));
      };
      const Numbers expected_dx = derivative([&](const Numbers& at) { return loss(at, in.w); }, in.x);
      const Numbers expected_dw =
          plus(numbers_of(device, dw), derivative([&](const Numbers& at) { return loss(in.x, at); }, in.w));
      device.head_norm_rotary_backward({.input_gradient = dx,
                                        .weight_gradient = dw,
                                        .output_gradient = above,
                                        .input = in.input,
                                        .rstd = rstd,
                                        .weight = in.weight,
                                        .cosine = in.cosine,
                                        .sine = in.sine},
                                       {});
      expect_near(device, dx, expected_dx, 2e-6);
      expect_near(device, dw, expected_dw, 2e-6);
    }
  });
}

}  // namespace
}  // namespace annulus::testing
