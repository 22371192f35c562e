// The CPU as a device: OpenMP threads inside a rank, oneDNN for matrix products, vector.h for the rest. Every operation
// gives the same bits for any timing of its threads, and all but the matrix products and attention for any number of
// them.
//
// Nothing is global: ranks that are threads of one process each have their own device.
#pragma once

#include "kernels/cpu/memory.h"
#include "kernels/cpu/vector.h"
#include "kernels/device.h"
#include "kernels/file_storage.h"

namespace annulus::cpu {

class CpuDevice final : public Device {
 public:
  // Throws ConfigurationError if there is no thread. `isa` is what vector loops use; the CPU must have it.
  // `disk_bytes`: room in options.offload_directory.
  CpuDevice(const DeviceOptions& options, Isa isa, std::unique_ptr<Memory> memory, int64_t disk_bytes);
  CpuDevice(const DeviceOptions& options, Isa isa)
      : CpuDevice(options, isa, std::make_unique<CpuMemory>(options.poison), 0) {}

  [[nodiscard]] std::string description() const override;
  Memory& memory() override { return *memory_; }
  Stream compute_stream() override { return {}; }
  ActivityClock& clock() override { return clock_; }
  Storage& storage(Place place) override;

  void upload(View destination, const void* source, Stream stream) override;
  void download(void* destination, View source, Stream stream) override;
  void fill_zero(View destination, Stream stream) override;
  void fill_normal(const NormalNumbers& args, Stream stream) override;
  void copy(View destination, View source, Stream stream) override;
  void accumulate(View destination, View source, Stream stream) override;
  void sum(View destination, View source, Stream stream) override;
  void sum_of_squares(View destination, View source, Stream stream) override;
  void sum_rows(View destination, View source, Stream stream) override;

  void matmul(const Matmul& args, Stream stream) override;

  void embedding_forward(View output, View table, View tokens, Stream stream) override;
  void embedding_backward(View table_gradient, View output_gradient, View tokens, Stream stream) override;

  void rms_norm_forward(const RmsNormForward& args, Stream stream) override;
  void rms_norm_backward(const RmsNormBackward& args, Stream stream) override;

  void rotary_angles(View cosine, View sine, View positions, double theta, Stream stream) override;
  void head_norm_rotary_forward(const HeadNormRotaryForward& args, Stream stream) override;
  void head_norm_rotary_backward(const HeadNormRotaryBackward& args, Stream stream) override;

  void attention_forward(const AttentionForward& args, Stream stream) override;
  void attention_delta(View delta, View output, View output_gradient, Stream stream) override;
  void attention_backward(const AttentionBackward& args, Stream stream) override;

  void swiglu_forward(View output, View gate_up, Stream stream) override;
  void swiglu_backward(View gate_up_gradient, View output_gradient, View gate_up, Stream stream) override;

  void cross_entropy(const CrossEntropy& args, Stream stream) override;
  void gradient_scale(const GradientScale& args, Stream stream) override;
  void adamw(const AdamW& args, Stream stream) override;

 private:
  int threads_;
  Isa isa_;
  const VectorMath& math_;
  HostActivityClock clock_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<FileStorage> disk_;  // where there is something to store; ends before the memory does
};

}  // namespace annulus::cpu
