// The functions of cuBLASLt that are used here, each passed on to the library: without it this executable chooses the
// CPU.
#include <cublasLt.h>

#include "kernels/shared_library.h"

namespace {

#define ANNULUS_STRING_(x) #x
#define ANNULUS_STRING(x) ANNULUS_STRING_(x)

const annulus::SharedLibrary& library() {
  static const annulus::SharedLibrary loaded({.product = "CUDA",
                                              .file = "libcublasLt.so." ANNULUS_STRING(CUBLAS_VER_MAJOR),
                                              .folder = ANNULUS_CUDA_LIBRARY_FOLDER,
                                              .package = "cuBLAS",
                                              .otherwise = "use runtime.device=cpu"});
  return loaded;
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  ANNULUS_PASS_ON(library(), cublasLtGetStatusString, (status));
}

size_t cublasLtGetVersion() {
  ANNULUS_PASS_ON(library(), cublasLtGetVersion, ());
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  ANNULUS_PASS_ON(library(), cublasLtCreate, (handle));
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  ANNULUS_PASS_ON(library(), cublasLtDestroy, (handle));
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  ANNULUS_PASS_ON(library(), cublasLtMatmulDescCreate, (description, compute, scale));
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  ANNULUS_PASS_ON(library(), cublasLtMatmulDescDestroy, (description));
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t size) {
  ANNULUS_PASS_ON(library(), cublasLtMatmulDescSetAttribute, (description, attribute, value, size));
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  ANNULUS_PASS_ON(library(), cublasLtMatrixLayoutCreate, (layout, type, rows, columns, stride));
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  ANNULUS_PASS_ON(library(), cublasLtMatrixLayoutDestroy, (layout));
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  ANNULUS_PASS_ON(library(), cublasLtMatmulPreferenceCreate, (preference));
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  ANNULUS_PASS_ON(library(), cublasLtMatmulPreferenceDestroy, (preference));
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  ANNULUS_PASS_ON(library(), cublasLtMatmulPreferenceSetAttribute, (preference, attribute, value, size));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  ANNULUS_PASS_ON(library(), cublasLtMatmulAlgoGetHeuristic,
                  (handle, description, a, b, c, d, preference, wanted, results, found));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  ANNULUS_PASS_ON(library(), cublasLtMatmul,
                  (handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
                   workspace, workspace_bytes, stream));
}

}  // extern "C"
