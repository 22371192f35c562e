// What a kernel's instructions do on the hosted device, against the tables of the PTX ISA.
#include <cmath>
#include <numeric>

#include "tests/hosted_cuda/fixture.h"

namespace annulus::hosted {
namespace {

using cuda::shared_array;
using cuda::SharedArray;

__global__ void add_one(float* data, int64_t count) {
  const int64_t i = cuda::block_index() * cuda::block_threads() + cuda::thread_index();
  if (i < count) data[i] += 1;
}

TEST_F(HostedCuda, RunsEveryThreadOfEveryBlock) {
  std::vector<float> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const DeviceArray<float> data(numbers, stream());
  EXPECT_SUCCESS(run(add_one, 4, 256, 0, data.get(), int64_t{1000}));
  const std::vector<float> result = data.download();
  for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(result[i], static_cast<float>(i + 1));
}

// Each block reverses its part through shared memory.
__global__ void reverse(int* data) {
  const int threads = cuda::block_threads(), i = cuda::thread_index();
  const SharedArray<int> shared = shared_array<int>(0, threads);
  int* part = data + cuda::block_index() * threads;
  shared[i] = part[i];
  cuda::sync_threads();
  part[i] = shared[threads - 1 - i];
}

TEST_F(HostedCuda, SharesMemoryInABlockAcrossABarrierInEveryOrderOfThreads) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    set_seed(seed);
    std::vector<int> numbers(512);
    std::iota(numbers.begin(), numbers.end(), 0);
    const DeviceArray<int> data(numbers, stream());
    EXPECT_SUCCESS(run(reverse, 2, 256, 1024, data.get()));
    const std::vector<int> result = data.download();
    for (int i = 0; i < 512; ++i) EXPECT_EQ(result[static_cast<size_t>(i)], i / 256 * 256 + 255 - i % 256);
  }
}

__global__ void shuffles(int* butterfly, double* from_seven) {
  const int i = cuda::thread_index();
  butterfly[i] = cuda::shfl_sync_bfly(i, 5);
  from_seven[i] = cuda::shfl_sync_idx(i + 0.5, 7);
}

TEST_F(HostedCuda, ShufflesWithinAWarp) {
  const DeviceArray<int> butterfly(std::vector<int>(64), stream());
  const DeviceArray<double> from_seven(std::vector<double>(64), stream());
  EXPECT_SUCCESS(run(shuffles, 1, 64, 0, butterfly.get(), from_seven.get()));
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(butterfly.download()[static_cast<size_t>(i)], i ^ 5);
    EXPECT_EQ(from_seven.download()[static_cast<size_t>(i)], i / 32 * 32 + 7.5);
  }
}

// Matrix m, row r, column c of four matrices in shared memory is 64 m + 8 r + c.
__global__ void load(uint32_t* registers, bool transposed) {
  const int lane = cuda::thread_index();
  const SharedArray<uint16_t> shared = shared_array<uint16_t>(0, 256);
  for (int i = 0; i < 8; ++i) shared[8 * lane + i] = static_cast<uint16_t>(8 * lane + i);
  cuda::sync_warp();
  uint32_t loaded[4];
  if (transposed) {
    cuda::ldmatrix_x4_trans(loaded, shared.address(8 * lane));
  } else {
    cuda::ldmatrix_x4(loaded, shared.address(8 * lane));
  }
  for (int i = 0; i < 4; ++i) registers[4 * lane + i] = loaded[i];
}

// The manual's figure: row r of a matrix lies in threads 4r to 4r+3, two neighbouring elements in each.
TEST_F(HostedCuda, LoadsMatricesAsTheManualDraws) {
  for (const bool transposed : {false, true}) {
    const DeviceArray<uint32_t> registers(std::vector<uint32_t>(128), stream());
    EXPECT_SUCCESS(run(load, 1, 32, 512, registers.get(), transposed));
    const std::vector<uint32_t> result = registers.download();
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      for (uint32_t row = 0; row < 8; ++row) {
        for (uint32_t column = 0; column < 8; ++column) {
          const uint32_t held = result[4 * (4 * row + column / 2) + matrix] >> (16 * (column % 2)) & 0xFFFF;
          EXPECT_EQ(held, 64 * matrix + (transposed ? 8 * column + row : 8 * row + column));
        }
      }
    }
  }
}

uint16_t bits_of(int small) {
  return static_cast<uint16_t>(cuda::cvt_rn_bf16(static_cast<float>(small)));
}

__global__ void multiply_add(float* d, const uint32_t* a, const uint32_t* b) {
  const int lane = cuda::thread_index();
  float sums[4];
  uint32_t left[4];
  for (int i = 0; i < 4; ++i) sums[i] = d[4 * lane + i];
  for (int i = 0; i < 4; ++i) left[i] = a[4 * lane + i];
  cuda::mma_m16n8k16(sums, left, b[2 * lane], b[2 * lane + 1]);
  for (int i = 0; i < 4; ++i) d[4 * lane + i] = sums[i];
}

// The manual's figures, read from the matrix to the thread: an element of A in row r and column k lies in thread
// 4 (r mod 8) + (k mod 8) / 2, as a0 to a7 by the quarter: upper left, lower left, upper right, lower right; one of B
// in row k and column n in thread 4 n + (k mod 8) / 2, as b0, b1 above and b2, b3 below; one of D in row r and column n
// in thread 4 (r mod 8) + n / 2, as d0, d1 above and d2, d3 below. Small integers are exact.
TEST_F(HostedCuda, MultipliesMatricesAsTheManualDraws) {
  const auto a = [](int r, int k) { return (r * 7 + k * 3) % 11 - 4; };
  const auto b = [](int k, int n) { return (k * 5 + n * 2) % 13 - 5; };
  std::vector<uint16_t> left(256), right(128);
  std::vector<float> sums(128);
  for (int r = 0; r < 16; ++r) {
    for (int k = 0; k < 16; ++k) {
      left[static_cast<size_t>(8 * (4 * (r % 8) + k % 8 / 2) + 4 * (k / 8) + 2 * (r / 8) + k % 2)] = bits_of(a(r, k));
    }
  }
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < 8; ++n)
      right[static_cast<size_t>(4 * (4 * n + k % 8 / 2) + 2 * (k / 8) + k % 2)] = bits_of(b(k, n));
  }
  const auto place = [](int r, int n) { return static_cast<size_t>(4 * (4 * (r % 8) + n / 2) + 2 * (r / 8) + n % 2); };
  for (int r = 0; r < 16; ++r) {
    for (int n = 0; n < 8; ++n) sums[place(r, n)] = static_cast<float>(100 * r + n);
  }
  const auto words = [](const std::vector<uint16_t>& halves) {
    std::vector<uint32_t> result(halves.size() / 2);
    std::memcpy(result.data(), halves.data(), 2 * halves.size());
    return result;
  };
  const DeviceArray<float> d(sums, stream());
  const DeviceArray<uint32_t> device_a(words(left), stream()), device_b(words(right), stream());
  EXPECT_SUCCESS(run(multiply_add, 1, 32, 0, d.get(), device_a.get(), device_b.get()));
  const std::vector<float> result = d.download();
  for (int r = 0; r < 16; ++r) {
    for (int n = 0; n < 8; ++n) {
      int expected = 100 * r + n;
      for (int k = 0; k < 16; ++k) expected += a(r, k) * b(k, n);
      EXPECT_EQ(result[place(r, n)], static_cast<float>(expected)) << r << ", " << n;
    }
  }
}

// Copies 16 bytes a thread, in two groups, and looks before and after each wait.
__global__ void copy_async(const uint32_t* from, uint32_t* seen) {
  const int i = cuda::thread_index();
  const SharedArray<uint32_t> shared = shared_array<uint32_t>(0, 256);
  cuda::cp_async_16(shared.address(4 * i), from + 4 * i, true);
  cuda::cp_async_commit_group();
  cuda::cp_async_16(shared.address(128 + 4 * i), from + 4 * i, i != 0);
  cuda::cp_async_commit_group();
  seen[6 * i] = shared[4 * i];
  cuda::cp_async_wait_group<1>();
  seen[6 * i + 1] = shared[4 * i];
  seen[6 * i + 2] = shared[4 * i + 3];
  seen[6 * i + 3] = shared[128 + 4 * i];
  cuda::cp_async_wait_group<0>();
  seen[6 * i + 4] = shared[128 + 4 * i];
  seen[6 * i + 5] = shared[128 + 4 * i + 3];
}

TEST_F(HostedCuda, AsynchronousCopiesAreThereAfterTheirWaitAndNotBefore) {
  std::vector<uint32_t> numbers(128);
  std::iota(numbers.begin(), numbers.end(), 1000U);
  const DeviceArray<uint32_t> from(numbers, stream()), seen(std::vector<uint32_t>(192), stream());
  EXPECT_SUCCESS(run(copy_async, 1, 32, 1024, from.get(), seen.get()));
  const std::vector<uint32_t> result = seen.download();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t first = 1000 + 4 * i, nothing = 0xFFFFFFFF;
    EXPECT_EQ(std::vector<uint32_t>(result.begin() + 6 * i, result.begin() + 6 * i + 6),
              (std::vector<uint32_t>{nothing, first, first + 3, nothing, i == 0 ? 0 : first, i == 0 ? 0 : first + 3}));
  }
}

TEST(HostedArithmetic, RoundsTwoNumbersToBfloat16) {
  EXPECT_EQ(cuda::cvt_rn_bf16x2(1.0F, -2.0F), 0x3F80C000U);
  EXPECT_EQ(cuda::cvt_rn_bf16(1.0F + 0x1p-8F), 0x3F80U);      // a tie, to even
  EXPECT_EQ(cuda::cvt_rn_bf16(1.0F + 3 * 0x1p-8F), 0x3F82U);  // a tie, to even
  EXPECT_EQ(cuda::cvt_rn_bf16(1.0F + 0x1p-8F + 0x1p-20F), 0x3F81U);
  EXPECT_EQ(cuda::cvt_rn_bf16(0x1.FFFFFEp127F), 0x7F80U);  // infinity
  EXPECT_EQ(cuda::cvt_rn_bf16(-std::nanf("")), 0x7FFFU);
}

TEST(HostedArithmetic, RaisesTwoToAPower) {
  EXPECT_EQ(cuda::ex2_approx_ftz(3), 8);
  EXPECT_EQ(cuda::ex2_approx_ftz(-127), 0);
  EXPECT_EQ(cuda::ex2_approx_ftz(-INFINITY), 0);
}

}  // namespace
}  // namespace annulus::hosted
