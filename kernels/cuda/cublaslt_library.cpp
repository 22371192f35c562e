// The functions of cuBLASLt that are used here, each passed on to the library, which is loaded when the first is
// called: so that one executable also starts where CUDA's libraries are not installed, and chooses the CPU there.
#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#include "kernels/error.h"

namespace {

#define ANNULUS_STRING_(x) #x
#define ANNULUS_STRING(x) ANNULUS_STRING_(x)
constexpr const char* library_name = "libcublasLt.so." ANNULUS_STRING(CUBLAS_VER_MAJOR);

// Never closed: functions of it may run until the process ends.
void* open_library() {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    library = dlopen((std::string(ANNULUS_CUDA_LIBRARY_FOLDER "/") + library_name).c_str(), RTLD_NOW);
  if (library == nullptr) {
    throw annulus::EnvironmentError(
        std::string("CUDA: cannot load ") + library_name + " (" + dlerror() +
        "); install cuBLAS or add its folder to LD_LIBRARY_PATH, or use runtime.device=cpu");
  }
  return library;
}

template <class Function>
Function* find(Function* /*declared*/, const char* name) {
  static void* const library = open_library();
  void* const function = dlsym(library, name);
  if (function == nullptr) {
    throw annulus::EnvironmentError(std::string("CUDA: ") + library_name + " has no " + name +
                                    "; install a newer cuBLAS, or use runtime.device=cpu");
  }
  return reinterpret_cast<Function*>(function);
}

}  // namespace

#define ANNULUS_PASS_ON(name, arguments)             \
  static const auto function = find(&(name), #name); \
  return function arguments

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  ANNULUS_PASS_ON(cublasLtGetStatusString, (status));
}

size_t cublasLtGetVersion() {
  ANNULUS_PASS_ON(cublasLtGetVersion, ());
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  ANNULUS_PASS_ON(cublasLtCreate, (handle));
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  ANNULUS_PASS_ON(cublasLtDestroy, (handle));
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  ANNULUS_PASS_ON(cublasLtMatmulDescCreate, (description, compute, scale));
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  ANNULUS_PASS_ON(cublasLtMatmulDescDestroy, (description));
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t size) {
  ANNULUS_PASS_ON(cublasLtMatmulDescSetAttribute, (description, attribute, value, size));
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  ANNULUS_PASS_ON(cublasLtMatrixLayoutCreate, (layout, type, rows, columns, stride));
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  ANNULUS_PASS_ON(cublasLtMatrixLayoutDestroy, (layout));
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  ANNULUS_PASS_ON(cublasLtMatmulPreferenceCreate, (preference));
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  ANNULUS_PASS_ON(cublasLtMatmulPreferenceDestroy, (preference));
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  ANNULUS_PASS_ON(cublasLtMatmulPreferenceSetAttribute, (preference, attribute, value, size));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  ANNULUS_PASS_ON(cublasLtMatmulAlgoGetHeuristic,
                  (handle, description, a, b, c, d, preference, wanted, results, found));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  ANNULUS_PASS_ON(cublasLtMatmul, (handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
                                   algorithm, workspace, workspace_bytes, stream));
}

}  // extern "C"
