#include <limits>

#include "tests/kernels/devices.h"

namespace annulus::testing {
namespace {

constexpr int64_t odd_sizes[] = {0, 1, 3, 17, 101, 70'001};

TEST(Transfers, RoundTripThroughHostMemory) {
  on_every_device([](Device& device) {
    const std::vector<float> host = {1, 2, 3};
    const Tensor tensor = device.allocate({3}, DType::float32, Purpose::staging);
    device.upload(tensor, host.data(), {});
    std::vector<float> back(3);
    device.download(back.data(), tensor, {});
    EXPECT_EQ(back, host);
  });
}

// As a step does it again and again: more than is under way at once, each from memory that is written anew.
TEST(Transfers, TakeTheHostMemoryAsItIsWhenTheyAreCalled) {
  const std::unique_ptr<Device> device = make_test_device();
  constexpr int64_t n = 3'000'000, turns = 9;
  const Tensor all = device->allocate({turns, n}, DType::float32, Purpose::staging);
  std::vector<float> host(n);
  for (int64_t turn = 0; turn < turns; ++turn) {
    std::fill(host.begin(), host.end(), static_cast<float>(turn));
    device->upload(all->slice(turn, turn + 1), host.data(), {});
  }
  for (int64_t turn = 0; turn < turns; ++turn) {
    device->download(host.data(), all->slice(turn, turn + 1), {});
    EXPECT_EQ(std::count(host.begin(), host.end(), static_cast<float>(turn)), n);
  }
}

TEST(FillZero, LeavesNothingElse) {
  on_every_device([](Device& device) {
    for (const int64_t n : odd_sizes) {
      const Tensor tensor = device.allocate({n + 1}, DType::bfloat16, Purpose::workspace);  // poisoned
      device.fill_zero(tensor->slice(0, n), {});
      const Numbers numbers = numbers_of(device, tensor);
      EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 0.0), n);
      EXPECT_TRUE(std::isnan(numbers.back()));
    }
  });
}

// As the definition has it, wherever a view of the tensor begins and ends; another library's logarithm may differ in its
// last bit, and round to another float32.
TEST(FillNormal, IsAFunctionOfTheElement) {
  constexpr uint64_t seed = 0x1234567890, sample = 5;
  const auto expected = [](int64_t element) {
    const auto words = Philox::words(seed, RandomStream::initialization, sample, static_cast<uint32_t>(element / 2));
    const double radius = std::sqrt(-2 * std::log((words[0] + 0.5) / 4294967296.0));
    const double angle = 2 * M_PI * words[1] / 4294967296.0;
    return 0.02 * radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
  };
  on_every_device([&](Device& device) {
    for (const int64_t first : {0, 1, 8192, 1'000'003}) {
      for (const int64_t n : odd_sizes) {
        const Tensor tensor = device.allocate({n + 1}, DType::float32, Purpose::staging);  // poisoned
        device.fill_normal(
            {.destination = tensor->slice(0, n), .first = first, .seed = seed, .sample = sample, .deviation = 0.02}, {});
        const Numbers numbers = numbers_of(device, tensor);
        for (int64_t i = 0; i < n; ++i) {
          const double right = expected(first + i);
          ASSERT_NEAR(numbers[static_cast<size_t>(i)], right, std::abs(right) * 0x1p-23) << first << ' ' << i;
        }
        EXPECT_TRUE(std::isnan(numbers.back()));
      }
    }
  });
}

TEST(Copy, KeepsBitsOfOneDtypeAndRoundsOnceToAnother) {
  on_every_device_and_dtype([](Device& device, DType from) {
    for (const DType to : {DType::float32, DType::bfloat16}) {
      for (const int64_t n : odd_sizes) {
        const Tensor source = tensor_of(device, {n}, from, random_numbers(n, 1));
        const Tensor destination = device.allocate({n}, to, Purpose::workspace);
        device.copy(destination, source, {});
        const Tensor expected = tensor_of(device, {n}, to, numbers_of(device, source));
        expect_same_bits(device, destination, expected);
      }
    }
  });
}

TEST(Copy, KeepsNaNInfinityAndSignWhenRounding) {
  on_every_device([](Device& device) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    constexpr int32_t nan = 0x7FFFFFFF;  // one that careless rounding makes −0
    const Tensor source = tensor_of(device, {5}, DType::float32, {0, infinity, -infinity, -0.0, 3e38});
    device.upload(source->slice(0, 1), &nan, {});
    const Tensor rounded = device.allocate({5}, DType::bfloat16, Purpose::workspace);
    device.copy(rounded, source, {});
    const Numbers numbers = numbers_of(device, rounded);
    EXPECT_TRUE(std::isnan(numbers[0]));
    EXPECT_EQ(numbers[1], infinity);
    EXPECT_EQ(numbers[2], -infinity);
    EXPECT_TRUE(std::signbit(numbers[3]));
    EXPECT_NEAR(numbers[4], 3e38, 3e38 / 256);
  });
}

TEST(Copy, MovesIntegers) {
  on_every_device([](Device& device) {
    const Tensor source = tensor_of(device, {3}, DType::int32, {-1, 7, 2147483647});
    const Tensor destination = device.allocate({3}, DType::int32, Purpose::staging);
    device.copy(destination, source, {});
    expect_same_bits(device, source, destination);
  });
}

TEST(Accumulate, AddsAnyTwoFloatDtypes) {
  on_every_device_and_dtype([](Device& device, DType from) {
    for (const DType to : {DType::float32, DType::bfloat16}) {
      for (const int64_t n : odd_sizes) {
        const Tensor source = tensor_of(device, {n}, from, random_numbers(n, 1));
        const Tensor destination = tensor_of(device, {n}, to, random_numbers(n, 2));
        const Numbers expected = plus(numbers_of(device, destination), numbers_of(device, source));
        device.accumulate(destination, source, {});
        expect_near(device, destination, expected, 1e-7);
      }
    }
  });
}

TEST(Sum, AddsToWhatIsThereInFloat64) {
  on_every_device([](Device& device) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const int64_t n : odd_sizes) {
        const Tensor source = tensor_of(device, {n}, dtype, random_numbers(n, 1));
        const Tensor sum = tensor_of(device, {1}, DType::float64, {10});
        const Tensor squares = tensor_of(device, {1}, DType::float64, {20});
        device.sum(sum, source, {});
        device.sum_of_squares(squares, source, {});
        const Numbers numbers = numbers_of(device, source);
        // Both sides err by some float64 roundings of 70,001 terms.
        const double expected = 10 + dot(numbers, Numbers(numbers.size(), 1));
        const double expected_squares = 20 + dot(numbers, numbers);
        EXPECT_NEAR(number_of(device, sum), expected, 1e-12 * expected);
        EXPECT_NEAR(number_of(device, squares), expected_squares, 1e-12 * expected_squares);
      }
    }
  });
}

// A float32 sum of these stops growing at 2^24.
TEST(Sum, DoesNotStopGrowing) {
  const std::unique_ptr<Device> device = make_test_device();
  constexpr int64_t n = 20'000'000;
  const Tensor ones = device->allocate({n}, DType::float32, Purpose::staging);
  device->upload(ones, std::vector<float>(n, 1.0F).data(), {});
  const Tensor sum = tensor_of(*device, {1}, DType::float64, {0});
  device->sum(sum, ones, {});
  EXPECT_EQ(number_of(*device, sum), 20e6);
  device->sum_of_squares(sum, ones, {});
  EXPECT_EQ(number_of(*device, sum), 40e6);
}

TEST(Embedding, LooksRowsUp) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    const Tensor table = tensor_of(device, {101, 17}, dtype, random_numbers(101 * 17, 1));
    const std::vector<int64_t> looked_up = {0, 100, 3, 3, 42};
    const Tensor tokens = tensor_of(device, {5}, DType::int32, Numbers(looked_up.begin(), looked_up.end()));
    const Tensor output = device.allocate({5, 17}, dtype, Purpose::workspace);
    device.embedding_forward(output, table, tokens, {});
    for (int64_t row = 0; row < 5; ++row) {
      const int64_t token = looked_up[static_cast<size_t>(row)];
      expect_same_bits(device, output->slice(row, row + 1), table->slice(token, token + 1));
    }
  });
}

TEST(Embedding, AddsTheGradientOfEveryOccurrence) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    constexpr int64_t width = 131;
    const std::vector<size_t> looked_up = {6, 2, 6, 6};
    const Tensor tokens = tensor_of(device, {4}, DType::int32, Numbers(looked_up.begin(), looked_up.end()));
    const Tensor gradient = tensor_of(device, {4, width}, dtype, random_numbers(4 * width, 1));
    const Tensor table = tensor_of(device, {7, width}, DType::float32, random_numbers(7 * width, 2));
    Numbers expected = numbers_of(device, table);
    const Numbers rows = numbers_of(device, gradient);
    for (size_t i = 0; i < 4 * width; ++i) {
      expected[looked_up[i / width] * width + i % width] += rows[i];
    }
    device.embedding_backward(table, gradient, tokens, {});
    expect_near(device, table, expected, 1e-6);
  });
}

Numbers swiglu(const Numbers& gate_up, size_t rows, size_t width) {
  Numbers output(rows * width);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < width; ++i) {
      const double gate = gate_up[row * 2 * width + i];
      output[row * width + i] = gate / (1 + std::exp(-gate)) * gate_up[row * 2 * width + width + i];
    }
  }
  return output;
}

// Gates from −40 to 40, so that both ends of the sigmoid are met.
Numbers gates_and_values(size_t rows, size_t width) {
  Numbers gate_up = random_numbers(static_cast<int64_t>(rows * 2 * width), 1);
  for (size_t i = 0; i < gate_up.size(); ++i) gate_up[i] *= i % 5 == 0 ? 40 : 1;
  return gate_up;
}

TEST(Swiglu, GatesEachValue) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    for (const int64_t width : {1, 3, 17, 101}) {
      const Tensor gate_up = tensor_of(device, {5, 2 * width}, dtype, gates_and_values(5, static_cast<size_t>(width)));
      const Tensor output = device.allocate({5, width}, dtype, Purpose::workspace);
      device.swiglu_forward(output, gate_up, {});
      expect_near(device, output, swiglu(numbers_of(device, gate_up), 5, static_cast<size_t>(width)), 1e-6);
    }
  });
}

TEST(Swiglu, HasTheGradientOfFiniteDifferencesApartAndInPlace) {
  on_every_device_and_dtype([](Device& device, DType dtype) {
    constexpr int64_t width = 19;
    const Tensor gate_up = tensor_of(device, {3, 2 * width}, dtype, gates_and_values(3, width));
    const Tensor output_gradient = tensor_of(device, {3, width}, dtype, random_numbers(3 * width, 2));
    const Numbers above = numbers_of(device, output_gradient);
    const Numbers expected =
        derivative([&](const Numbers& x) { return dot(above, swiglu(x, 3, width)); }, numbers_of(device, gate_up));
    const Tensor gradient = device.allocate({3, 2 * width}, dtype, Purpose::workspace);
    device.swiglu_backward(gradient, output_gradient, gate_up, {});
    expect_near(device, gradient, expected, 1e-6);
    device.swiglu_backward(gate_up, output_gradient, gate_up, {});
    expect_same_bits(device, gate_up, gradient);
  });
}

}  // namespace
}  // namespace annulus::testing
