#include "kernels/cuda/workspace.h"

#include "kernels/workspace.h"

namespace annulus {
namespace {

class CudaWorkspaceSizes final : public WorkspaceSizes {
 public:
  [[nodiscard]] int64_t matmul(const Matmul& /*args*/) const override { return cuda::matmul_workspace; }
  [[nodiscard]] int64_t attention_forward(const AttentionForward& /*args*/) const override { return 0; }
  [[nodiscard]] int64_t attention_backward(const AttentionBackward& /*args*/) const override { return 0; }
  [[nodiscard]] int64_t rms_norm_backward(const RmsNormBackward& args) const override {
    return cuda::partial_sums_bytes(cuda::norm_parts(args.input.rows()), args.weight.elements());
  }
  [[nodiscard]] int64_t rotary_angles(const View& /*cosine*/) const override { return 0; }
  [[nodiscard]] int64_t head_norm_rotary_backward(const HeadNormRotaryBackward& args) const override {
    return cuda::partial_sums_bytes(cuda::head_norm_parts(args.rstd.elements()), args.weight.elements());
  }
  [[nodiscard]] int64_t sum(const View& source) const override {
    return cuda::partial_sums_bytes(cuda::sum_parts(source.elements()), 1);
  }
};

}  // namespace

std::unique_ptr<WorkspaceSizes> cuda_workspace_sizes() {
  return std::make_unique<CudaWorkspaceSizes>();
}

}  // namespace annulus
