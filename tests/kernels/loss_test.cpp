#include "tests/kernels/devices.h"

namespace annulus::testing {
namespace {

double loss_of_row(const Numbers& logits, size_t begin, size_t vocabulary, size_t label) {
  double most = logits[begin];
  for (size_t i = begin; i < begin + vocabulary; ++i) most = std::max(most, logits[i]);
  double sum = 0;
  for (size_t i = begin; i < begin + vocabulary; ++i) sum += std::exp(logits[i] - most);
  return std::log(sum) + most - logits[begin + label];
}

Tensor losses_of(Device& device, View logits, const Numbers& labels, const Numbers& weights) {
  const Tensor label = tensor_of(device, {logits.rows()}, DType::int32, labels);
  const Tensor weight = tensor_of(device, {logits.rows()}, DType::float32, weights);
  Tensor losses = device.allocate({logits.rows()}, DType::float32, Purpose::workspace);
  device.cross_entropy({.logits = logits, .losses = losses, .labels = label, .weights = weight}, {});
  return losses;
}

TEST(CrossEntropy, OfEqualLogitsIsTheLogarithmOfTheUnpaddedVocabulary) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    const Tensor logits = tensor_of(device, {2, 101}, dtype, Numbers(202, 0));
    const Tensor losses = losses_of(device, logits, {100, 0}, {1, 1});
    expect_near(device, losses, {4.61512, 4.61512}, 1e-6);
    Numbers gradient(202, 1.0 / 101);
    gradient[100] = gradient[101] = 1.0 / 101 - 1;
    expect_near(device, logits, gradient, 1e-7);
  });
}

// Widths below, at and beyond a vector and a block of the sum; logits far apart, so that small probabilities occur.
TEST(CrossEntropy, IsTheWeightedLossAndItsGradientIsThatOfSoftmax) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    for (const int64_t vocabulary : {1, 3, 17, 101, 5003}) {
      SCOPED_TRACE(vocabulary);
      const auto width = static_cast<size_t>(vocabulary);
      Numbers numbers = random_numbers(4 * vocabulary, 1);
      for (double& number : numbers) number = number * 20 + 50;
      const Tensor logits = tensor_of(device, {4, vocabulary}, dtype, numbers);
      const Numbers z = numbers_of(device, logits);
      const Numbers labels = {0, static_cast<double>(vocabulary - 1), static_cast<double>(vocabulary / 2), 0};
      const Numbers weights = {1, 0.5, 2, 3};
      Numbers expected_losses;
      Numbers gradient;
      for (size_t row = 0; row < 4; ++row) {
        const auto label = static_cast<size_t>(labels[row]);
        const double loss = loss_of_row(z, row * width, width, label);
        expected_losses.push_back(weights[row] * loss);
        for (size_t i = 0; i < width; ++i) {
          const double probability = std::exp(z[row * width + i] - z[row * width + label] - loss);
          gradient.push_back(weights[row] * (probability - (i == label ? 1 : 0)));
        }
      }
      const Tensor losses = losses_of(device, logits, labels, weights);
      expect_near(device, losses, expected_losses, 5e-7);
      expect_near(device, logits, gradient, 5e-7);
    }
  });
}

TEST(CrossEntropy, KeepsItsDigitsOverALargeVocabulary) {
  on_every_device([](Device& device) {
    constexpr int64_t vocabulary = 151'936;
    const Tensor logits = tensor_of(device, {1, vocabulary}, DType::float32, random_numbers(vocabulary, 1));
    const double expected = loss_of_row(numbers_of(device, logits), 0, vocabulary, 77);
    const Tensor losses = losses_of(device, logits, {77}, {1});
    expect_near(device, losses, {expected}, 1e-7);
  });
}

TEST(CrossEntropy, OfARowWithoutAnswerOrWeightIsExactlyZeroWhateverItsLogits) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    Numbers numbers(3 * 17, NAN);
    std::fill_n(numbers.begin(), 17, 1.0);
    const Tensor logits = tensor_of(device, {3, 17}, dtype, numbers);
    const Tensor losses = losses_of(device, logits, {5, -1, 5}, {1, 1, 0});
    EXPECT_NEAR(numbers_of(device, losses)[0], std::log(17.0), 1e-6);
    EXPECT_EQ(numbers_of(device, losses->slice(1, 3)), Numbers(2, 0));
    EXPECT_EQ(numbers_of(device, logits->slice(1, 3)), Numbers(2 * 17, 0));
  });
}

// As masked logits are: −∞ is a logit of probability 0, also where a thread or a vector meets nothing else.
TEST(CrossEntropy, GivesALogitOfMinusInfinityNoProbability) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    Numbers numbers(1001, -INFINITY);
    numbers[7] = numbers[900] = 1;
    const Tensor logits = tensor_of(device, {1, 1001}, dtype, numbers);
    const Tensor losses = losses_of(device, logits, {7}, {1});
    expect_near(device, losses, {std::log(2.0)}, 1e-6);
    Numbers gradient(1001, 0);
    gradient[7] = -0.5;
    gradient[900] = 0.5;
    expect_near(device, logits, gradient, 1e-6);
  });
}

TEST(CrossEntropy, ShowsNaNInAnAnsweredRow) {
  on_every_device([](Device& device) {
    for (const size_t place : {size_t{0}, size_t{40}, size_t{100}}) {
      Numbers numbers(101, 1);
      numbers[place] = NAN;
      const Tensor logits = tensor_of(device, {1, 101}, DType::float32, numbers);
      const Tensor losses = losses_of(device, logits, {7}, {1});
      EXPECT_TRUE(std::isnan(number_of(device, losses)));
      EXPECT_TRUE(std::isnan(numbers_of(device, logits)[50]));
    }
  });
}

}  // namespace
}  // namespace annulus::testing
