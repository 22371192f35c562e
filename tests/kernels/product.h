// Matrix products in float64, for the tests of products.
#pragma once

#include "tests/kernels/devices.h"

namespace annulus::testing {

// op(A)·op(B) + addend; stored matrices are dense. The addend's numbers are not looked at where nothing is added.
inline Numbers product(const Matmul& args, const Numbers& a, const Numbers& b, const Numbers& addend) {
  const int64_t m = args.c.dim(0);
  const int64_t n = args.c.dim(1);
  const int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  Numbers result(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = args.adds() ? addend[static_cast<size_t>(i * n + j)] : 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += a[static_cast<size_t>(args.transpose_a ? l * m + i : i * k + l)] *
               b[static_cast<size_t>(args.transpose_b ? j * k + l : l * n + j)];
      }
      result[static_cast<size_t>(i * n + j)] = sum;
    }
  }
  return result;
}

// (rows, columns) as it is stored.
inline Shape matrix(int64_t rows, int64_t columns, bool transposed) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

}  // namespace annulus::testing
