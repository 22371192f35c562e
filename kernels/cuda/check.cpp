#include "kernels/cuda/check.h"

#include <string>

namespace annulus::cuda {

void check(cudaError_t error, const char* call, SourceLocation where) {
  if (error == cudaSuccess) return;
  const std::string message = std::string("CUDA: ") + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
                              ") in " + call + " at " + where.file() + ':' + std::to_string(where.line());
  if (error == cudaErrorMemoryAllocation) {
    throw MemoryError(message + "; use more ranks, a shorter sequence or a smaller model", where);
  }
  throw EnvironmentError(message, where);
}

}  // namespace annulus::cuda
