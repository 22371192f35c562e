#include <limits>

#include "tests/kernels/devices.h"

namespace annulus::testing {
namespace {

struct Scale {
  double scale, norm;
};

Scale scale_of(double sum_of_squares, double denominator, double max_norm) {
  const std::unique_ptr<Device> owner = make_test_device();
  Device& device = *owner;
  const Tensor scale = device.allocate({1}, DType::float32, Purpose::workspace);
  const Tensor norm = device.allocate({1}, DType::float64, Purpose::workspace);
  const Tensor squares = tensor_of(device, {1}, DType::float64, {sum_of_squares});
  const Tensor divisor = tensor_of(device, {1}, DType::float64, {denominator});
  device.gradient_scale(
      {.scale = scale, .norm = norm, .sum_of_squares = squares, .denominator = divisor, .max_norm = max_norm}, {});
  return {number_of(device, scale), number_of(device, norm)};
}

TEST(GradientScale, DividesByTheDenominatorOnceAndClipsTheNorm) {
  EXPECT_DOUBLE_EQ(scale_of(100, 4, 0).norm, 2.5);
  EXPECT_FLOAT_EQ(static_cast<float>(scale_of(100, 4, 0).scale), 0.25F);  // no clipping
  EXPECT_FLOAT_EQ(static_cast<float>(scale_of(100, 4, 3).scale), 0.25F);  // below the bound
  EXPECT_NEAR(scale_of(100, 4, 1).scale, 0.25 / (2.5 + 1e-6), 1e-8);
  EXPECT_EQ(scale_of(0, 4, 1).norm, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(scale_of(0, 4, 1).scale), 0.25F);
}

TEST(GradientScale, IsNaNIfTheNormIsNotFiniteOrNothingWasAnswered) {
  EXPECT_TRUE(std::isnan(scale_of(NAN, 4, 1).scale));
  EXPECT_TRUE(std::isnan(scale_of(std::numeric_limits<double>::infinity(), 4, 1).scale));
  EXPECT_TRUE(std::isnan(scale_of(std::numeric_limits<double>::infinity(), 4, 0).scale));
  EXPECT_TRUE(std::isnan(scale_of(100, 0, 1).scale));
  EXPECT_TRUE(std::isnan(scale_of(0, 0, 1).scale));
}

constexpr double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, scale = 0.5;

struct Parameter {
  Numbers master, moment1, moment2;
};

void reference_step(Parameter& p, const Numbers& gradient, int step) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * scale;
    p.moment1[i] = beta1 * p.moment1[i] + (1 - beta1) * g;
    p.moment2[i] = beta2 * p.moment2[i] + (1 - beta2) * g * g;
    const double m = p.moment1[i] / (1 - std::pow(beta1, step));
    const double v = p.moment2[i] / (1 - std::pow(beta2, step));
    p.master[i] = p.master[i] * (1 - learning_rate * weight_decay) - learning_rate * m / (std::sqrt(v) + eps);
  }
}

AdamW adamw_of(View master, View moment1, View moment2, View gradient, View weight, View scales) {
  return {.master = master,
          .moment1 = moment1,
          .moment2 = moment2,
          .gradient = gradient,
          .weight = weight,
          .scale = scales,
          .learning_rate = learning_rate,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = eps,
          .weight_decay = weight_decay};
}

TEST(AdamW, FollowsThePublishedStepsWithDecoupledDecay) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    for (const int64_t n : {1, 3, 17, 40'001}) {
      const Tensor master = tensor_of(device, {n}, DType::float32, random_numbers(n, 1));
      const Tensor moment1 = tensor_of(device, {n}, DType::float32, Numbers(static_cast<size_t>(n), 0));
      const Tensor moment2 = tensor_of(device, {n}, DType::float32, Numbers(static_cast<size_t>(n), 0));
      const Tensor weight = device.allocate({n}, dtype, Purpose::workspace);
      const Tensor scales = tensor_of(device, {1}, DType::float32, {scale});
      Parameter expected{numbers_of(device, master), numbers_of(device, moment1), numbers_of(device, moment2)};
      const Numbers start = expected.master;
      for (int step = 1; step <= 3; ++step) {
        const Tensor gradient =
            tensor_of(device, {n}, DType::float32, random_numbers(n, static_cast<uint64_t>(step) + 10));
        AdamW args = adamw_of(master, moment1, moment2, gradient, weight, scales);
        args.step = step;
        device.adamw(args, {});
        reference_step(expected, numbers_of(device, gradient), step);
      }
      expect_near(device, master, expected.master, 2e-7);
      expect_near(device, moment1, expected.moment1, 1e-6);
      expect_near(device, moment2, expected.moment2, 1e-6);
      expect_near(device, weight, expected.master, 2e-7);
    }
  });
}

TEST(AdamW, WritesTheMasterInPlaceOfAFloat32Weight) {
  on_every_device([](Device& device) {
    std::vector<Tensor> masters;
    for (const bool in_place : {false, true}) {
      Tensor master = tensor_of(device, {101}, DType::float32, random_numbers(101, 1));
      const Tensor moment1 = tensor_of(device, {101}, DType::float32, Numbers(101, 0));
      const Tensor moment2 = tensor_of(device, {101}, DType::float32, Numbers(101, 0));
      const Tensor gradient = tensor_of(device, {101}, DType::float32, random_numbers(101, 2));
      const Tensor weight = device.allocate({101}, DType::float32, Purpose::workspace);
      const Tensor scales = tensor_of(device, {1}, DType::float32, {scale});
      device.adamw(adamw_of(master, moment1, moment2, gradient, in_place ? master.view() : weight.view(), scales), {});
      masters.push_back(std::move(master));
    }
    expect_same_bits(device, masters[0], masters[1]);
  });
}

// The decay of one step is lr·wd = 1e-5 of a weight: 1 − 1e-5 in float32 would be wrong by half a percent of that.
TEST(AdamW, DecaysByTheRightAmountEvenWhenItIsSmall) {
  on_every_device([](Device& device) {
    const Tensor master = tensor_of(device, {1}, DType::float32, {1});
    const Tensor moment1 = tensor_of(device, {1}, DType::float32, {0});
    const Tensor moment2 = tensor_of(device, {1}, DType::float32, {0});
    const Tensor gradient = tensor_of(device, {1}, DType::float32, {0});
    const Tensor weight = device.allocate({1}, DType::float32, Purpose::workspace);
    const Tensor scales = tensor_of(device, {1}, DType::float32, {1});
    AdamW args = adamw_of(master, moment1, moment2, gradient, weight, scales);
    args.learning_rate = 1e-4;
    device.adamw(args, {});
    EXPECT_EQ(number_of(device, master), static_cast<float>(1 - 1e-5));
  });
}

TEST(AdamW, TouchesNothingWhereTheScaleIsNaN) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    const Tensor master = tensor_of(device, {5}, DType::float32, random_numbers(5, 1));
    const Tensor moment1 = tensor_of(device, {5}, DType::float32, random_numbers(5, 2));
    const Tensor moment2 = tensor_of(device, {5}, DType::float32, random_numbers(5, 3, 2));
    const Tensor gradient = tensor_of(device, {5}, DType::float32, random_numbers(5, 4));
    const Tensor weight = tensor_of(device, {5}, dtype, random_numbers(5, 1));
    const Tensor scales = tensor_of(device, {1}, DType::float32, {NAN});
    const Numbers before[] = {numbers_of(device, master), numbers_of(device, moment1), numbers_of(device, moment2),
                              numbers_of(device, weight)};
    device.adamw(adamw_of(master, moment1, moment2, gradient, weight, scales), {});
    const Numbers after[] = {numbers_of(device, master), numbers_of(device, moment1), numbers_of(device, moment2),
                             numbers_of(device, weight)};
    EXPECT_TRUE(std::equal(std::begin(before), std::end(before), std::begin(after)));
  });
}

}  // namespace
}  // namespace annulus::testing
