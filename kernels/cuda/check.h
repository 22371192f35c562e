// Errors of the CUDA runtime become exceptions that name the call and its place.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/error.h"

namespace annulus::cuda {

// MemoryError where the device has no memory left, otherwise EnvironmentError. An error that a kernel caused shows at a
// later call.
void check(cudaError_t error, const char* call, SourceLocation where = SourceLocation::current());

}  // namespace annulus::cuda

#define ANNULUS_CUDA_CHECK(call) ::annulus::cuda::check((call), #call)
