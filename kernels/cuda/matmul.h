// Matrix products by cuBLASLt, with float32 sums.
#pragma once

#include <cublasLt.h>

#include <map>
#include <string>
#include <tuple>

#include "kernels/device.h"
#include "kernels/handle.h"

namespace annulus::cuda {

class MatmulLibrary {
 public:
  // EnvironmentError where cuBLASLt is not found or does not start.
  MatmulLibrary();

  // Queues the product of non-empty matrices. `workspace` has matmul_workspace bytes and is in use until it is done.
  void run(const Matmul& args, void* workspace, cudaStream_t stream);

  [[nodiscard]] std::string description() const;  // "cuBLASLt 13.0.2"

 private:
  // What the choice of an algorithm depends on: shapes, dtypes, transposes, whether something is added, and the alignment
  // of the operands.
  using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, bool, bool, bool, uint32_t, uint32_t, uint32_t, uint32_t>;

  Handle<cublasLtHandle_t, cublasLtDestroy> library_;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;  // as they were chosen at the first call of their kind
};

}  // namespace annulus::cuda
