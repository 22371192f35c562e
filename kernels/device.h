// One device: its memory and its mathematics. The only face of a device that the floors above see.
//
// Views passed to one call do not overlap unless a comment allows it. Activations and weights are float32 or bfloat16 and,
// within one call, of the same dtype; every sum runs in float32 at least, and a stored tensor is rounded once. An operation
// starts after what was queued on its stream before; the CPU completes it before returning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "kernels/activity_clock.h"
#include "kernels/attention.h"
#include "kernels/memory_plan.h"
#include "kernels/storage.h"
#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace annulus {

// c = op(a)·op(b) + addend, where op transposes if asked.
struct Matmul {
  View c;  // (m, n), the dtype of a, or float32
  View a;  // (m, k), or (k, m) if transposed
  View b;  // (k, n), or (n, k) if transposed
  bool transpose_a = false;
  bool transpose_b = false;
  View addend = {};  // (m, n), the dtype of c: may be c itself; left out: nothing is added

  [[nodiscard]] bool adds() const { return addend.shape().rank() > 0; }
};

// y = x / rms(x) · weight over the last dimension, rms(x) = sqrt(mean(x²) + eps) (Zhang and Sennrich, arXiv 1910.07467).
struct RmsNormForward {
  View output;  // (rows, width)
  View rstd;    // (rows) float32: 1 / rms(x), kept for backward
  View input;   // (rows, width)
  View weight;  // (width)
  float eps = 1e-6F;
};

struct RmsNormBackward {
  View input_gradient;   // (rows, width): added to
  View weight_gradient;  // (width) float32: added to
  View output_gradient;  // (rows, width), the dtype of input, or float32
  View input;            // (rows, width)
  View rstd;             // (rows) float32
  View weight;           // (width)
};

// Each head normalised as above, then rotated by its row's angles: with h = head_dim/2, (y_i, y_{i+h}) =
// (x_i cos − x_{i+h} sin, x_{i+h} cos + x_i sin) (Su et al., arXiv 2104.09864, in the half-split order of Hugging Face).
struct HeadNormRotaryForward {
  View output;  // (rows, heads, head_dim)
  View rstd;    // (rows, heads) float32
  View input;   // (rows, heads, head_dim)
  View weight;  // (head_dim)
  View cosine;  // (rows, head_dim/2) float32
  View sine;    // (rows, head_dim/2) float32
  float eps = 1e-6F;
};

struct HeadNormRotaryBackward {
  View input_gradient;   // (rows, heads, head_dim): written
  View weight_gradient;  // (head_dim) float32: added to
  View output_gradient;  // (rows, heads, head_dim) float32
  View input;            // (rows, heads, head_dim)
  View rstd;             // (rows, heads) float32
  View weight;           // (head_dim)
  View cosine;           // (rows, head_dim/2) float32
  View sine;             // (rows, head_dim/2) float32
};

// loss_i = weight_i (ln Σ_v exp(z_iv) − z_i,label) and its gradient weight_i (softmax(z_i) − onehot(label)); a row whose
// label is −1 has loss 0 and gradient 0.
struct CrossEntropy {
  View logits;  // (rows, vocabulary): overwritten with the gradient
  View losses;  // (rows) float32: written
  View labels;  // (rows) int32
  View weights; // (rows) float32
};

// AdamW with decoupled decay (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2; decay times the learning rate as in
// PyTorch). The gradient is multiplied by `scale` first; where scale is NaN nothing is touched.
struct AdamW {
  View master;    // (n) float32
  View moment1;   // (n) float32
  View moment2;   // (n) float32
  View gradient;  // (n) float32
  View weight;    // (n): written with the rounded master; may be the master itself
  View scale;     // (1) float32
  int64_t step = 1;  // from 1, for the bias correction
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
};

// What one step's gradients are multiplied by: 1/denominator, times min(1, max_norm / (norm + 1e-6)) if max_norm > 0.
struct GradientScale {
  View scale;        // (1) float32: written; NaN if the norm is not finite or the denominator is 0
  View norm;         // (1) float64: written; sqrt(sum_of_squares) / denominator
  View sum_of_squares;  // (1) float64
  View denominator;     // (1) float64
  double max_norm = 0;
};

// Normal numbers with mean 0, each a function of where its tensor has it: elements 2k and 2k + 1 are the cosine and the
// sine of Box and Muller (A note on the generation of random normal deviates, 1958) in float64, from the first two
// words of the generator at (seed, stream initialization, sample, index k), u1 = (w0 + ½)·2⁻³², u2 = w1·2⁻³².
struct NormalNumbers {
  View destination;   // (n) float32
  int64_t first = 0;  // the tensor's element that comes first here
  uint64_t seed = 0;
  uint64_t sample = 0;
  double deviation = 1;
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual std::string description() const = 0;  // for the log: what computes here, with how many threads
  virtual Memory& memory() = 0;
  virtual Stream compute_stream() = 0;
  virtual ActivityClock& clock() = 0;

  // Where tensors go that are not needed at the moment. ConfigurationError for a place this device does not have beside
  // its own memory.
  virtual Storage& storage(Place place) = 0;

  Tensor allocate(const Shape& shape, DType dtype, Purpose purpose) {
    return {Allocation(memory(), shape.elements() * size_of(dtype), purpose), dtype, shape};
  }

  // Between the host and the device; the host memory may be reused once the call has returned.
  virtual void upload(View destination, const void* source, Stream stream) = 0;
  virtual void download(void* destination, View source, Stream stream) = 0;

  virtual void fill_zero(View destination, Stream stream) = 0;
  virtual void fill_normal(const NormalNumbers& args, Stream stream) = 0;
  virtual void copy(View destination, View source, Stream stream) = 0;        // same elements; converts the dtype
  virtual void accumulate(View destination, View source, Stream stream) = 0;  // destination += source, any two float dtypes
  virtual void sum(View destination, View source, Stream stream) = 0;          // (1) float64 += Σ source (float32 or float64)
  virtual void sum_of_squares(View destination, View source, Stream stream) = 0;  // (1) float64 += Σ source²

  // destination = the sum of the rows of source, in their order
  virtual void sum_rows(View destination /*(n) float64*/, View source /*(rows, n) float64*/, Stream stream) = 0;

  virtual void matmul(const Matmul& args, Stream stream) = 0;

  // output row i = table row tokens[i]; backward adds row i of the gradient to the table gradient's row tokens[i].
  virtual void embedding_forward(View output /*(rows, width)*/, View table /*(vocabulary, width)*/,
                                 View tokens /*(rows) int32*/, Stream stream) = 0;
  virtual void embedding_backward(View table_gradient /*(vocabulary, width) float32*/, View output_gradient,
                                  View tokens, Stream stream) = 0;

  virtual void rms_norm_forward(const RmsNormForward& args, Stream stream) = 0;
  virtual void rms_norm_backward(const RmsNormBackward& args, Stream stream) = 0;

  // cos and sin of positions[row] · theta^(−2i/head_dim), computed in float64 and rounded to float32.
  virtual void rotary_angles(View cosine /*(rows, head_dim/2)*/, View sine, View positions /*(rows) int32*/,
                             double theta, Stream stream) = 0;
  virtual void head_norm_rotary_forward(const HeadNormRotaryForward& args, Stream stream) = 0;
  virtual void head_norm_rotary_backward(const HeadNormRotaryBackward& args, Stream stream) = 0;

  virtual void attention_forward(const AttentionForward& args, Stream stream) = 0;
  virtual void attention_delta(View delta /*(rows, heads) float32*/, View output /*(rows, heads, head_dim)*/,
                               View output_gradient, Stream stream) = 0;
  virtual void attention_backward(const AttentionBackward& args, Stream stream) = 0;

  // output = silu(gate) · up with gate_up = [gate | up] in each row (Shazeer, arXiv 2002.05202).
  virtual void swiglu_forward(View output /*(rows, width)*/, View gate_up /*(rows, 2·width)*/, Stream stream) = 0;
  virtual void swiglu_backward(View gate_up_gradient /*(rows, 2·width), may be gate_up itself*/, View output_gradient,
                               View gate_up, Stream stream) = 0;

  virtual void cross_entropy(const CrossEntropy& args, Stream stream) = 0;

  virtual void gradient_scale(const GradientScale& args, Stream stream) = 0;
  virtual void adamw(const AdamW& args, Stream stream) = 0;

  // Called on the calling thread between the tiles of long operations, so that whoever moves messages can move them.
  void set_progress(std::function<void()> progress) { progress_ = std::move(progress); }

 protected:
  void progress() const {
    if (progress_) progress_();
  }

 private:
  std::function<void()> progress_;
};

struct DeviceOptions {
  int threads = 1;      // of this rank (CPU)
  int gpu = 0;          // which of the machine's GPUs (CUDA)
  int reserved_multiprocessors = 0;  // that attention leaves to messages; it takes one at least (CUDA)
  bool poison = false;  // fill every buffer with NaN when it is allocated and again when it is released
  std::filesystem::path offload_directory = {};  // where Place::disk is
};

// Each throws EnvironmentError where the device is not built or not there. With a plan, the device's memory is the planned
// arena; without one, every buffer is allocated by itself, which suits single operations.
std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options);
std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options, MemoryPlan plan);
std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options);
std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options, MemoryPlan plan);

int cuda_device_count();  // how many GPUs this process may use; 0 where the device is not built

// The memory of a GPU. Bytes.
struct GpuMemory {
  int64_t available = 0;  // that no process has taken; the context of the one that asks is taken by then
  int64_t total = 0;
};

GpuMemory cuda_memory(int gpu);  // makes it the calling thread's current GPU; EnvironmentError as above

// What a process is assumed to take of a GPU's memory beside its buffers: the driver's context, the code of kernels, and
// what cuBLASLt keeps. NVIDIA documents no figure; it depends on the GPU and the driver.
inline constexpr int64_t cuda_context_bytes = 600'000'000;

}  // namespace annulus
