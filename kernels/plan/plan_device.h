// A device without memory and without arithmetic: it records what a run allocates and counts what it would compute. The
// trainer runs on it unchanged, and what was recorded is the plan of the real run.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "kernels/plan/mask_runs.h"
#include "kernels/plan/plan_storage.h"
#include "kernels/plan/recording_memory.h"
#include "kernels/workspace.h"

namespace annulus {

// Multiplications and additions count one each. Attention counts visible pairs: 4·head_dim a pair and head forward,
// 10·head_dim backward.
struct FloatingPointOperations {
  double attention = 0;
  double matmul = 0;
};

class PlanDevice final : public Device {
 public:
  PlanDevice(std::unique_ptr<WorkspaceSizes> workspace, bool red_zones)
      : workspace_(std::move(workspace)), memory_(red_zones) {}

  [[nodiscard]] const RecordingMemory& recording() const { return memory_; }
  [[nodiscard]] const FloatingPointOperations& operations() const { return operations_; }

  [[nodiscard]] std::string description() const override { return "plan"; }
  Memory& memory() override { return memory_; }
  Stream compute_stream() override { return {}; }
  ActivityClock& clock() override { return clock_; }
  Storage& storage(Place place) override;
  [[nodiscard]] const PlanStorage& host() const { return host_; }
  [[nodiscard]] const PlanStorage& disk() const { return disk_; }

  // Masks are remembered, to count what attention would see; a download gives ones.
  void upload(View destination, const void* source, Stream stream) override;
  void download(void* destination, View source, Stream stream) override;

  void fill_zero(View, Stream) override {}
  void fill_normal(const NormalNumbers&, Stream) override {}
  void copy(View, View, Stream) override {}
  void accumulate(View, View, Stream) override {}
  void sum(View destination, View source, Stream stream) override;
  void sum_of_squares(View destination, View source, Stream stream) override;
  void sum_rows(View, View, Stream) override {}
  void matmul(const Matmul& args, Stream stream) override;
  void embedding_forward(View, View, View, Stream) override {}
  void embedding_backward(View, View, View, Stream) override {}
  void rms_norm_forward(const RmsNormForward&, Stream) override {}
  void rms_norm_backward(const RmsNormBackward& args, Stream stream) override;
  void rotary_angles(View cosine, View sine, View positions, double theta, Stream stream) override;
  void head_norm_rotary_forward(const HeadNormRotaryForward&, Stream) override {}
  void head_norm_rotary_backward(const HeadNormRotaryBackward& args, Stream stream) override;
  void attention_forward(const AttentionForward& args, Stream stream) override;
  void attention_delta(View, View, View, Stream) override {}
  void attention_backward(const AttentionBackward& args, Stream stream) override;
  void swiglu_forward(View, View, Stream) override {}
  void swiglu_backward(View, View, View, Stream) override {}
  void cross_entropy(const CrossEntropy&, Stream) override {}
  void gradient_scale(const GradientScale&, Stream) override {}
  void adamw(const AdamW&, Stream) override {}

 private:
  // What an operation's workspace depends on. Tiles, layers and ring steps ask for the same ones thousands of times.
  using ProductShape = std::array<int64_t, 9>;  // a, b, dtypes, flags
  using AttentionShape = std::vector<int64_t>;  // dtype, queries, slices of keys

  void use_workspace(int64_t bytes);
  [[nodiscard]] double pairs(const View& ranges, std::span<const KeySlice> keys) const;

  HostActivityClock clock_;
  std::unique_ptr<WorkspaceSizes> workspace_;
  RecordingMemory memory_;
  PlanStorage host_, disk_;
  FloatingPointOperations operations_;
  std::map<const void*, std::vector<MaskRun>> masks_;  // by the address of their first row; a mask may come in parts
  std::map<ProductShape, int64_t> product_workspaces_;
  std::map<AttentionShape, int64_t> forward_workspaces_, backward_workspaces_;
};

}  // namespace annulus
