#include "kernels/cuda/matmul.h"

#include "kernels/cuda/check.h"
#include "kernels/cuda/workspace.h"

namespace annulus::cuda {
namespace {

void check_blas(cublasStatus_t status, const char* call, SourceLocation where = SourceLocation::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw EnvironmentError(std::string("cuBLASLt: ") + cublasLtGetStatusString(status) + " in " + call + " at " +
                             where.file() + ':' + std::to_string(where.line()),
                         where);
}

#define ANNULUS_BLAS_CHECK(call) check_blas((call), #call)

using Description = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::float32 ? CUDA_R_32F : CUDA_R_16BF;
}

Description make_description(bool transpose_a, bool transpose_b) {
  cublasLtMatmulDesc_t handle = nullptr;
  ANNULUS_BLAS_CHECK(cublasLtMatmulDescCreate(&handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Description description(handle);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, bool transpose) {
    const cublasOperation_t operation = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    ANNULUS_BLAS_CHECK(cublasLtMatmulDescSetAttribute(handle, attribute, &operation, sizeof(operation)));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a);
  set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b);
  return description;
}

// A row-major matrix, as the column-major matrix of its transpose.
Layout make_layout(const View& matrix) {
  cublasLtMatrixLayout_t handle = nullptr;
  ANNULUS_BLAS_CHECK(cublasLtMatrixLayoutCreate(&handle, data_type(matrix.dtype()),
                                                static_cast<uint64_t>(matrix.dim(1)),
                                                static_cast<uint64_t>(matrix.dim(0)), matrix.dim(1)));
  return Layout(handle);
}

// The largest power of two up to 256 that divides the address.
uint32_t alignment(const View& view) {
  const auto address = reinterpret_cast<uintptr_t>(view.data()) | 256U;
  return static_cast<uint32_t>(address & -address);
}

// Sums of parts stay in float32, in a fixed order: neither additions in place nor a rounding in between.
Preference make_preference(const View& a, const View& b, const View& c, const View& d) {
  cublasLtMatmulPreference_t handle = nullptr;
  ANNULUS_BLAS_CHECK(cublasLtMatmulPreferenceCreate(&handle));
  Preference preference(handle);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    ANNULUS_BLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(matmul_scratch));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(d));
  return preference;
}

void* aligned(void* workspace) {
  auto* const bytes = static_cast<char*>(workspace);
  return bytes + (-reinterpret_cast<uintptr_t>(bytes) & (matmul_alignment - 1));
}

std::string shape_of(const Matmul& args) {
  return args.c.shape().to_string() + " from " + args.a.shape().to_string() + " and " + args.b.shape().to_string();
}

}  // namespace

MatmulLibrary::MatmulLibrary() {
  cublasLtHandle_t handle = nullptr;
  ANNULUS_BLAS_CHECK(cublasLtCreate(&handle));
  library_ = Handle<cublasLtHandle_t, cublasLtDestroy>(handle);
}

// cuBLASLt is column-major, where a row-major matrix is its transpose: cᵀ = op(b)ᵀ·op(a)ᵀ, so b comes first.
void MatmulLibrary::run(const Matmul& args, void* workspace, cudaStream_t stream) {
  const auto& [c, a, b, transpose_a, transpose_b, given_addend] = args;
  const View& addend = args.adds() ? given_addend : c;  // not read where its factor is 0
  const Description description = make_description(transpose_b, transpose_a);
  const Layout first = make_layout(b), second = make_layout(a), result = make_layout(c);
  const Key key{c.dim(0),     c.dim(1),     a.dim(transpose_a ? 0 : 1),
                a.dtype(),    c.dtype(),    transpose_a,
                transpose_b,  args.adds(),  alignment(a),
                alignment(b), alignment(c), alignment(addend)};
  auto chosen = algorithms_.find(key);
  if (chosen == algorithms_.end()) {
    const Preference preference = make_preference(b, a, addend, c);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    ANNULUS_BLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(library_.get(), description.get(), first.get(), second.get(),
                                                      result.get(), result.get(), preference.get(), 1, &best, &found));
    if (found == 0) throw EnvironmentError("cuBLASLt has no algorithm for a product of " + shape_of(args));
    chosen = algorithms_.emplace(key, best.algo).first;
  }
  const float alpha = 1, beta = args.adds() ? 1 : 0;
  ANNULUS_BLAS_CHECK(cublasLtMatmul(library_.get(), description.get(), &alpha, b.data(), first.get(), a.data(),
                                    second.get(), &beta, addend.data(), result.get(), c.data(), result.get(),
                                    &chosen->second, aligned(workspace), static_cast<size_t>(matmul_scratch), stream));
}

std::string MatmulLibrary::description() const {
  const size_t version = cublasLtGetVersion();
  return "cuBLASLt " + std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

}  // namespace annulus::cuda
