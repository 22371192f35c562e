// A GPU as a device: one stream for all that is computed, kernels of our own, cuBLASLt for matrix products. Operations
// return before they are done, in the order of their stream; nothing here waits for the GPU but a download, and an
// upload when more than the staging ring holds is under way. Every operation gives the same bits each time it gets the
// same arguments.
//
// A token or label outside the vocabulary cannot be refused without waiting: its output, its loss and its row's
// gradient become NaN, which stops the run before any weight changes.
#pragma once

#include <memory>
#include <optional>

#include "kernels/cuda/activity_clock.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/stream.h"
#include "kernels/device.h"

namespace annulus::cuda {

class CudaDevice final : public Device {
 public:
  // Makes options.gpu the calling thread's current GPU; EnvironmentError where there is none.
  explicit CudaDevice(const DeviceOptions& options);
  CudaDevice(const DeviceOptions& options, MemoryPlan plan);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  [[nodiscard]] std::string description() const override;
  Memory& memory() override { return *memory_; }
  Stream compute_stream() override { return {stream_.get()}; }
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

  // head_dim is a multiple of 8 up to 256, the scale positive.
  void attention_forward(const AttentionForward& args, Stream stream) override;
  void attention_delta(View delta, View output, View output_gradient, Stream stream) override;
  void attention_backward(const AttentionBackward& args, Stream stream) override;

  void swiglu_forward(View output, View gate_up, Stream stream) override;
  void swiglu_backward(View gate_up_gradient, View output_gradient, View gate_up, Stream stream) override;

  void cross_entropy(const CrossEntropy& args, Stream stream) override;
  void gradient_scale(const GradientScale& args, Stream stream) override;
  void adamw(const AdamW& args, Stream stream) override;

 private:
  [[nodiscard]] cudaStream_t stream_of(Stream stream) const {
    return stream.handle == nullptr ? stream_.get() : cuda_stream(stream);
  }
  // All operations share one workspace, which is theirs in the order of the compute stream and no other.
  [[nodiscard]] cudaStream_t workspace_stream(Stream stream) const {
    require(stream_of(stream) == stream_.get(), "an operation with workspace runs on the compute stream");
    return stream_.get();
  }
  template <bool square>
  void add_sum(const View& destination, const View& source, cudaStream_t stream);

  int gpu_;
  StreamHandle stream_;
  CudaActivityClock clock_{stream_.get()};
  std::optional<int> attention_multiprocessors_;  // that attention takes at most; nothing: as many as there are
  Staging staging_;
  MatmulLibrary matmul_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Storage> host_, disk_;  // where there is something to store; they end before the memory does
};

}  // namespace annulus::cuda
