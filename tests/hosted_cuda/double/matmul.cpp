// cuBLASLt: column-major products with float32 sums, by plain loops. What is not written here is not supported.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/hosted_cuda/double/machine.h"
#include "tests/hosted_cuda/double/order.h"
#include "tests/hosted_cuda/double/stream.h"

namespace annulus::hosted {
namespace {

struct Description {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};

struct Layout {
  cudaDataType type;
  int64_t rows, columns, stride;

  [[nodiscard]] size_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  [[nodiscard]] size_t bytes() const {
    return rows == 0 || columns == 0 ? 0 : static_cast<size_t>((columns - 1) * stride + rows) * element_bytes();
  }
};

struct Preference {
  uint64_t workspace_bytes = 0;
};

struct Matrix {
  const void* data;
  Layout layout;
};

// d = alpha op(a) op(b) + beta c.
struct Product {
  Description operations;
  float alpha, beta;
  Matrix a, b, c;
  void* d;
  Layout d_layout;
  void* workspace;
  size_t workspace_bytes;
};

template <class T>
const T& hosted(const void* handle) {
  return *static_cast<const T*>(handle);
}

cublasStatus_t refuse(cublasStatus_t status, const std::string& why) {
  fail(cudaErrorInvalidValue, "cuBLASLt: " + why);
  return status;
}

float load(const Matrix& matrix, int64_t row, int64_t column) {
  const auto at = static_cast<size_t>(column * matrix.layout.stride + row);
  if (matrix.layout.type == CUDA_R_32F) return static_cast<const float*>(matrix.data)[at];
  return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(matrix.data)[at]) << 16);
}

void store(void* data, const Layout& layout, int64_t row, int64_t column, float value) {
  const auto at = static_cast<size_t>(column * layout.stride + row);
  if (layout.type == CUDA_R_32F) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = std::isnan(value) ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(rounded);
}

// op(matrix) in float32, column by column.
std::vector<float> widened(const Matrix& matrix, bool transpose) {
  const int64_t rows = transpose ? matrix.layout.columns : matrix.layout.rows;
  const int64_t columns = transpose ? matrix.layout.rows : matrix.layout.columns;
  std::vector<float> result(static_cast<size_t>(rows * columns));
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      result[static_cast<size_t>(column * rows + row)] =
          transpose ? load(matrix, column, row) : load(matrix, row, column);
    }
  }
  return result;
}

void tell_sanitizers(const Product& product) {
  const Shown shown;
  reads(product.a.data, product.a.layout.bytes());
  reads(product.b.data, product.b.layout.bytes());
  if (product.beta != 0) reads(product.c.data, product.c.layout.bytes());
  writes(product.d, product.d_layout.bytes());
  writes(product.workspace, product.workspace_bytes);
}

void multiply(const Product& product) {
  tell_sanitizers(product);
  const int64_t m = product.d_layout.rows, n = product.d_layout.columns;
  const bool transpose_a = product.operations.a == CUBLAS_OP_T;
  const int64_t k = transpose_a ? product.a.layout.rows : product.a.layout.columns;
  const std::vector<float> a = widened(product.a, transpose_a);
  const std::vector<float> b = widened(product.b, product.operations.b == CUBLAS_OP_T);
  std::vector<float> sums(static_cast<size_t>(m));
  for (int64_t column = 0; column < n; ++column) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (int64_t i = 0; i < k; ++i) {
      const float factor = b[static_cast<size_t>(column * k + i)];
      const float* begin = a.data() + i * m;
      for (int64_t row = 0; row < m; ++row) sums[static_cast<size_t>(row)] += factor * begin[row];
    }
    for (int64_t row = 0; row < m; ++row) {
      const float before = product.beta == 0 ? 0 : product.beta * load(product.c, row, column);
      store(product.d, product.d_layout, row, column, product.alpha * sums[static_cast<size_t>(row)] + before);
    }
  }
  std::memset(product.workspace, 0xFF, product.workspace_bytes);
}

cublasStatus_t check_shapes(const Description& operations, const Layout& a, const Layout& b, const Layout& c,
                            const Layout& d) {
  const bool transpose_a = operations.a == CUBLAS_OP_T, transpose_b = operations.b == CUBLAS_OP_T;
  const int64_t m = transpose_a ? a.columns : a.rows, k = transpose_a ? a.rows : a.columns;
  const int64_t k_of_b = transpose_b ? b.columns : b.rows, n = transpose_b ? b.rows : b.columns;
  if (k != k_of_b || d.rows != m || d.columns != n || c.rows != m || c.columns != n) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the shapes of a product do not fit each other");
  }
  if (a.type != b.type || c.type != d.type || (a.type == CUDA_R_32F && d.type != CUDA_R_32F)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "these data types");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_memory(const void* data, size_t bytes, const char* name) {
  Range range;
  if (locate(data, bytes, range) != cudaSuccess) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes == 0 || range.place == Place::device) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_INVALID_VALUE, std::string(name) + " is not in device memory");
}

}  // namespace
}  // namespace annulus::hosted

using namespace annulus::hosted;

#define RETURN_IF_FAILED(call) \
  if (const cublasStatus_t status = (call); status != CUBLAS_STATUS_SUCCESS) return status

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "a status the hosted cuBLASLt never gives";
  }
}

size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const Hidden hidden;
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const Hidden hidden;
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const Hidden hidden;
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "sums are float32 here");
  }
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  const Hidden hidden;
  delete reinterpret_cast<Description*>(description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  const Hidden hidden;
  cublasOperation_t operation{};
  if (size != sizeof operation) return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of another size");
  std::memcpy(&operation, value, size);
  auto& description = *reinterpret_cast<Description*>(handle);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) {
    description.a = operation;
  } else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) {
    description.b = operation;
  } else {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "of a product's attributes only TRANSA and TRANSB");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  const Hidden hidden;
  if (type != CUDA_R_32F && type != CUDA_R_16BF) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "this data type");
  if (stride < static_cast<int64_t>(rows)) return refuse(CUBLAS_STATUS_INVALID_VALUE, "columns that overlap");
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  const Hidden hidden;
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  const Hidden hidden;
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  const Hidden hidden;
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  if (attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return CUBLAS_STATUS_SUCCESS;  // a hint to the real one
  const Hidden hidden;
  if (size != sizeof(uint64_t)) return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace is counted in 64 bits");
  std::memcpy(&reinterpret_cast<Preference*>(preference)->workspace_bytes, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

// The one algorithm there is asks for as much workspace as it may, so that a workspace too small or in use shows.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  const Hidden hidden;
  *found = 0;
  RETURN_IF_FAILED(check_shapes(hosted<Description>(description), hosted<Layout>(a), hosted<Layout>(b),
                                hosted<Layout>(c), hosted<Layout>(d)));
  if (wanted < 1) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no algorithm is wanted");
  results[0] = {};
  results[0].workspaceSize = std::min<size_t>(hosted<Preference>(preference).workspace_bytes, 4096);
  results[0].algo.data[0] = results[0].workspaceSize;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Hidden hidden;
  if (check(stream) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const Product product{.operations = hosted<Description>(description),
                        .alpha = hosted<float>(alpha),
                        .beta = hosted<float>(beta),
                        .a = {a, hosted<Layout>(a_layout)},
                        .b = {b, hosted<Layout>(b_layout)},
                        .c = {c, hosted<Layout>(c_layout)},
                        .d = d,
                        .d_layout = hosted<Layout>(d_layout),
                        .workspace = workspace,
                        .workspace_bytes = static_cast<size_t>(algorithm->data[0])};
  RETURN_IF_FAILED(
      check_shapes(product.operations, product.a.layout, product.b.layout, product.c.layout, product.d_layout));
  if (workspace_bytes < product.workspace_bytes || reinterpret_cast<uintptr_t>(workspace) % 256 != 0) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace smaller than the algorithm's, or not aligned to 256 bytes");
  }
  RETURN_IF_FAILED(check_memory(a, product.a.layout.bytes(), "a"));
  RETURN_IF_FAILED(check_memory(b, product.b.layout.bytes(), "b"));
  RETURN_IF_FAILED(check_memory(c, product.c.layout.bytes(), "c"));
  RETURN_IF_FAILED(check_memory(d, product.d_layout.bytes(), "d"));
  RETURN_IF_FAILED(check_memory(workspace, workspace_bytes, "the workspace"));
  stream->enqueue(CUstream_st::Kind::kernel, [product] { multiply(product); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
