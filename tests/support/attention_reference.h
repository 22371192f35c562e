// What the attention tests share: problems, masks, attention in float64 written straight from its definition, and a
// harness that runs a device's on the same numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"

namespace annulus::testing {

using Ranges = std::vector<KeyRanges>;

struct Problem {
  int64_t rows, keys, kv_heads, group, head_dim;
  double scale;
  DType dtype;                // of the inputs and the output; δ is taken of the output as stored
  Ranges ranges;              // (rows)
  std::vector<double> query;  // (rows, kv_heads · group, head_dim)
  std::vector<double> key;    // (keys, kv_heads, head_dim)
  std::vector<double> value;  // (keys, kv_heads, head_dim)
  std::vector<double> output_gradient;
  int64_t first = 0;  // the row of key 0

  [[nodiscard]] int64_t heads() const { return kv_heads * group; }
  [[nodiscard]] bool sees(int64_t row, int64_t key_index) const;
  [[nodiscard]] bool dead(int64_t row) const;          // sees no key
  [[nodiscard]] bool unseen(int64_t key_index) const;  // no row sees it
};

struct Answers {
  std::vector<double> output, log_sum, query_gradient, key_gradient, value_gradient;
};

// Reproducible numbers around `offset`, rounded to dtype (float64: not at all). The same seed gives the same numbers.
std::vector<double> numbers(int64_t count, double offset, uint32_t seed, DType dtype);

// A problem whose inputs are noise with offsets.
Problem make_problem(const Ranges& ranges, int64_t keys, int64_t kv_heads, int64_t group, int64_t head_dim, DType dtype,
                     uint32_t seed = 1);

// Sets the scale so that the largest |score| is `size`.
void set_score_size(Problem& problem, double size);

// Masks of `rows` rows.
Ranges full_mask(int64_t rows);
Ranges causal_mask(int64_t rows);
Ranges window_mask(int64_t rows, int64_t window);
Ranges packed_mask(int64_t rows, const std::vector<int64_t>& lengths, int64_t window);  // the rest of the rows is dead
Ranges sink_mask(int64_t rows, int64_t sinks, int64_t window);  // the first keys and a window: two ranges
Ranges block_diffusion_mask(int64_t rows, int64_t block);  // noisy copies in the first half, clean ones in the second
Ranges random_mask(int64_t rows, uint32_t seed);           // also rows without keys

struct NamedMask {
  std::string name;
  Ranges ranges;
};
std::vector<NamedMask> every_mask(int64_t rows);

Answers reference(const Problem& problem);

// Keys [begin, end) of a problem.
struct Piece {
  int64_t begin, end;
};
using Calls = std::vector<std::vector<Piece>>;  // what each call gets

// `calls` calls that share out the keys in pieces at random places, in random order; some calls may get nothing.
Calls random_calls(int64_t keys, int64_t calls, uint32_t seed);

// Forward, delta and backward on a device; without calls, in one with all keys.
Answers run(Device& device, const Problem& problem, const Calls& calls = {});

// ‖a − b‖ / ‖b‖ where b is not zero; infinite values must be equal. NaN if anything is NaN.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

double norm(const std::vector<double>& a);

// Each tensor within its relative error; dead rows and unseen keys exactly. A gradient that is truly zero, below 1e-7
// of the norm of all three (queries and keys under a window of 1), is only checked to stay below 1e-6 of that norm,
// times scale · √head_dim.
void expect_close(const Problem& problem, const Answers& actual, const Answers& expected, double tolerance);

}  // namespace annulus::testing
