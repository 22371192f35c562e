#include "kernels/cpu/vector.h"

#include <limits>

#include "kernels/cpu/device.h"
#include "tests/kernels/devices.h"

namespace annulus::cpu {
namespace {

using namespace annulus::testing;

void on_every_isa(const std::function<void(const VectorMath&)>& body) {
  for (const Isa isa : {Isa::v2, Isa::v3, Isa::v4}) {
    if (!has(isa)) continue;
    SCOPED_TRACE(name_of(isa));
    body(vector_math(isa));
  }
}

TEST(Exp, IsRightToThreeUlpFromUnderflowToOverflow) {
  on_every_isa([](const VectorMath& math) {
    std::vector<float> numbers;
    for (float x = -87.3F; x < 88.7F; x += 0.0037F) numbers.push_back(x);
    std::vector<float> results = numbers;
    math.float32.scaled_exp(results.data(), 0, 1, static_cast<int64_t>(results.size()));
    double worst = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double expected = std::exp(static_cast<double>(numbers[i]));
      worst = std::max(worst, std::abs(results[i] - expected) / expected);
    }
    EXPECT_LT(worst, 2e-7);
  });
}

TEST(Exp, IsExactWhereItMatters) {
  on_every_isa([](const VectorMath& math) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> x = {-infinity, -200, 0, infinity, 100, NAN, -95};
    math.float32.scaled_exp(x.data(), 0, 1, 7);
    EXPECT_EQ(x[0], 0);
    EXPECT_EQ(x[1], 0);
    EXPECT_EQ(x[2], 1);
    EXPECT_EQ(x[3], infinity);
    EXPECT_EQ(x[4], infinity);
    EXPECT_TRUE(std::isnan(x[5]));
    EXPECT_NEAR(x[6], std::exp(-95.0), 2e-45);  // subnormal
  });
}

TEST(Maximum, PassesOverNaNAndFindsTheLargestAnywhere) {
  on_every_isa([](const VectorMath& math) {
    for (const size_t n : {1U, 31U, 32U, 33U, 101U}) {
      for (size_t place = 0; place < n; ++place) {
        std::vector<float> x(n, -5.0F);
        x[(place + 1) % n] = NAN;
        x[place] = -2.0F;
        EXPECT_EQ(math.float32.maximum(x.data(), static_cast<int64_t>(n)), -2.0F);
      }
    }
    EXPECT_EQ(math.float32.maximum(nullptr, 0), -std::numeric_limits<float>::infinity());
  });
}

}  // namespace
}  // namespace annulus::cpu
