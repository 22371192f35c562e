// A device without memory and without arithmetic: it records what a run allocates and counts what it would compute. The
// trainer runs on it unchanged, and what was recorded is the plan of the real run.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kernels/device.h"
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

  // Masks are remembered, to count what attention would see; a download gives ones.
  void upload(View destination, const void* source, Stream stream) override;
  void download(void* destination, View source, Stream stream) override;

  void fill_zero(View, Stream) override {}
  void copy(View, View, Stream) override {}
  void accumulate(View, View, Stream) override {}
  void sum(View, View, Stream) override {}
  void sum_of_squares(View, View, Stream) override {}
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
  void use_workspace(int64_t bytes);
  [[nodiscard]] double visible_pairs(const View& ranges, std::span<const KeySlice> keys) const;

  std::unique_ptr<WorkspaceSizes> workspace_;
  RecordingMemory memory_;
  FloatingPointOperations operations_;
  std::map<const void*, std::vector<KeyRanges>> masks_;  // by the address of their view
};

}  // namespace annulus
