#include "kernels/workspace.h"

#include "kernels/cpu/attention.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/cpu/workspace.h"

namespace annulus {
namespace {

class CpuWorkspaceSizes final : public WorkspaceSizes {
 public:
  explicit CpuWorkspaceSizes(int threads) : threads_(threads) {}

  [[nodiscard]] int64_t matmul(const Matmul& args) const override { return cpu::matmul_workspace(args, threads_); }
  [[nodiscard]] int64_t attention_forward(const AttentionForward& args) const override {
    return cpu::attention_forward_workspace(args, threads_);
  }
  [[nodiscard]] int64_t attention_backward(const AttentionBackward& args) const override {
    return cpu::attention_backward_workspace(args, threads_);
  }
  [[nodiscard]] int64_t rms_norm_backward(const RmsNormBackward& args) const override {
    return cpu::RowSums::workspace(args.input.rows(), args.input.dim(1));
  }
  [[nodiscard]] int64_t rotary_angles(const View& cosine) const override {
    return cpu::rotary_angles_workspace(cosine.row_elements());
  }
  [[nodiscard]] int64_t head_norm_rotary_backward(const HeadNormRotaryBackward& args) const override {
    return cpu::RowSums::workspace(args.input.rows(), args.input.dim(2));
  }
  [[nodiscard]] int64_t sum(const View& /*source*/) const override { return 0; }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<WorkspaceSizes> cpu_workspace_sizes(int threads) {
  return std::make_unique<CpuWorkspaceSizes>(threads);
}

}  // namespace annulus
