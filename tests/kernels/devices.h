// What the tests of devices share: every way to set one up, inputs, and comparison with float64. The executable decides
// which devices: kernels_tests has tests/kernels/cpu/devices.cpp, those of CUDA have tests/kernels/cuda/devices.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/philox.h"

namespace annulus::testing {

using Numbers = std::vector<double>;

struct DeviceSetup {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};

std::vector<DeviceSetup> device_setups();    // each way there is; buffers are poisoned
std::unique_ptr<Device> make_test_device();  // for tests that one way is enough for; poisoned
std::unique_ptr<Device> make_planned_device(MemoryPlan plan, bool poison);  // whose memory is the planned arena

inline void on_every_device(const std::function<void(Device&)>& body) {
  for (const DeviceSetup& setup : device_setups()) {
    SCOPED_TRACE(setup.name);
    const std::unique_ptr<Device> device = setup.make();
    body(*device);
    EXPECT_EQ(device->memory().live_bytes(), 0);
  }
}

inline void on_every_device_and_dtype(const std::function<void(Device&, DType)>& body) {
  on_every_device([&](Device& device) {
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

// Appends a number as the dtype has it.
inline void append(std::vector<std::byte>& bytes, DType dtype, double number) {
  const auto add = [&]<class T>(T value) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), begin, begin + sizeof(T));
  };
  switch (dtype) {
    case DType::float32:
      return add(static_cast<float>(number));
    case DType::bfloat16:
      return add(round_to_bfloat16(static_cast<float>(number)));
    case DType::int32:
      return add(static_cast<int32_t>(number));
    case DType::float64:
      return add(number);
  }
}

inline double number_at(const std::byte* bytes, DType dtype) {
  const auto read = [&]<class T>(T value) {
    std::copy_n(bytes, sizeof(T), reinterpret_cast<std::byte*>(&value));
    return value;
  };
  switch (dtype) {
    case DType::float32:
      return read(float{});
    case DType::bfloat16:
      return widen(read(bfloat16{}));
    case DType::int32:
      return read(int32_t{});
    case DType::float64:
      return read(double{});
  }
  return NAN;
}

inline void set_numbers(Device& device, View view, const Numbers& numbers) {
  ASSERT_EQ(static_cast<size_t>(view.elements()), numbers.size());
  std::vector<std::byte> bytes;
  for (const double number : numbers) append(bytes, view.dtype(), number);
  device.upload(view, bytes.data(), device.compute_stream());
}

inline Tensor tensor_of(Device& device, const Shape& shape, DType dtype, const Numbers& numbers) {
  Tensor tensor = device.allocate(shape, dtype, Purpose::staging);
  set_numbers(device, tensor, numbers);
  return tensor;
}

inline std::vector<std::byte> bytes_of(Device& device, View view) {
  std::vector<std::byte> bytes(static_cast<size_t>(view.bytes()));
  device.download(bytes.data(), view, device.compute_stream());
  return bytes;
}

inline Numbers numbers_of(Device& device, View view) {
  const std::vector<std::byte> bytes = bytes_of(device, view);
  Numbers numbers;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(size_of(view.dtype()))) {
    numbers.push_back(number_at(bytes.data() + at, view.dtype()));
  }
  return numbers;
}

inline double number_of(Device& device, View view) {
  return numbers_of(device, view).at(0);
}

// Each element of `actual` is the expected one, rounded once to the dtype of `actual`, but for an error of float32
// arithmetic of at most `tolerance` times the largest expected number.
inline void expect_near(Device& device, View actual, const Numbers& expected, double tolerance) {
  const Numbers numbers = numbers_of(device, actual);
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
inline void expect_same_bits(Device& device, View a, View b) {
  EXPECT_EQ(bytes_of(device, a), bytes_of(device, b));
}

}  // namespace annulus::testing
