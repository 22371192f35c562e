// What the tests of the CPU device share: every way to set one up, inputs, and comparison with float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu/device.h"
#include "kernels/philox.h"

namespace annulus::cpu {

using Numbers = std::vector<double>;

// body(device) on 1, 2 and 3 threads, with every instruction set this machine has; buffers are poisoned.
inline void on_every_device(const std::function<void(CpuDevice&)>& body) {
  for (const Isa isa : {Isa::v2, Isa::v3, Isa::v4}) {
    for (const int threads : {1, 2, 3}) {
      if (!has(isa)) continue;
      SCOPED_TRACE(std::string(name_of(isa)) + ", " + std::to_string(threads) + " threads");
      CpuDevice device({.threads = threads, .poison = true}, isa);
      body(device);
      EXPECT_EQ(device.memory().live_bytes(), 0);
    }
  }
}

inline void on_every_device_and_dtype(const std::function<void(CpuDevice&, DType)>& body) {
  on_every_device([&](CpuDevice& device) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      SCOPED_TRACE(name_of(dtype));
      body(device, dtype);
    }
  });
}

// n numbers in [mean − 1, mean + 1), the same for the same seed.
inline Numbers random_numbers(int64_t n, uint64_t seed, double mean = 0.25) {
  Numbers numbers(static_cast<size_t>(n));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint32_t word = Philox::words(seed, RandomStream::initialization, 0, static_cast<uint32_t>(i))[0];
    numbers[i] = mean - 1 + 2 * (static_cast<double>(word) / 4294967296.0);
  }
  return numbers;
}

inline Tensor tensor_of(Device& device, const Shape& shape, DType dtype, const Numbers& numbers) {
  Tensor tensor = device.allocate(shape, dtype, Purpose::workspace);
  EXPECT_EQ(static_cast<size_t>(tensor->elements()), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    switch (dtype) {
      case DType::float32:
        tensor->as<float>()[i] = static_cast<float>(numbers[i]);
        break;
      case DType::bfloat16:
        tensor->as<bfloat16>()[i] = round_to_bfloat16(static_cast<float>(numbers[i]));
        break;
      case DType::int32:
        tensor->as<int32_t>()[i] = static_cast<int32_t>(numbers[i]);
        break;
      case DType::float64:
        tensor->as<double>()[i] = numbers[i];
        break;
    }
  }
  return tensor;
}

inline Numbers numbers_of(View view) {
  Numbers numbers(static_cast<size_t>(view.elements()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    switch (view.dtype()) {
      case DType::float32:
        numbers[i] = view.as<float>()[i];
        break;
      case DType::bfloat16:
        numbers[i] = widen(view.as<bfloat16>()[i]);
        break;
      case DType::int32:
        numbers[i] = view.as<int32_t>()[i];
        break;
      case DType::float64:
        numbers[i] = view.as<double>()[i];
        break;
    }
  }
  return numbers;
}

// Each element of `actual` is the expected one, rounded once to the dtype of `actual`, but for an error of float32
// arithmetic of at most `tolerance` times the largest expected number.
inline void expect_near(View actual, const Numbers& expected, double tolerance) {
  const Numbers numbers = numbers_of(actual);
  ASSERT_EQ(numbers.size(), expected.size());
  const double half_ulp = actual.dtype() == DType::bfloat16 ? std::ldexp(1.0, -8) : 0;  // relative, just above 2^k
  double largest = 0;
  for (const double number : expected) largest = std::max(largest, std::abs(number));
  size_t wrong = 0;
  size_t first_wrong = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool near = std::abs(numbers[i] - expected[i]) <= half_ulp * std::abs(expected[i]) + tolerance * largest;
    if (!near && wrong++ == 0) first_wrong = i;
  }
  EXPECT_EQ(wrong, 0U) << "first at " << first_wrong << ": " << numbers[first_wrong] << " instead of "
                       << expected[first_wrong];
}

// The derivative of `function` by each element of `at`, by central differences.
inline Numbers derivative(const std::function<double(const Numbers&)>& function, Numbers at) {
  constexpr double h = 1e-5;
  Numbers result(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const double x = at[i];
    at[i] = x + h;
    const double above = function(at);
    at[i] = x - h;
    result[i] = (above - function(at)) / (2 * h);
    at[i] = x;
  }
  return result;
}

inline double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline Numbers plus(Numbers a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// The same bytes; NaN equals itself.
inline void expect_same_bits(View a, View b) {
  ASSERT_EQ(a.bytes(), b.bytes());
  const auto* const first = static_cast<const char*>(a.data());
  EXPECT_TRUE(std::equal(first, first + a.bytes(), static_cast<const char*>(b.data())));
}

}  // namespace annulus::cpu
