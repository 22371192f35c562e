// Root mean square norms, of rows and, together with the rotary embedding, of heads.
#include <cmath>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cpu {

void CpuDevice::rms_norm_forward(const RmsNormForward& args, Stream /*stream*/) {
  const int64_t rows = args.input.rows();
  const int64_t width = args.weight.elements();
  require_shapes(args);
  auto* const rstd = args.rstd.as<float>();
  with_float_type(args.input.dtype(), [&]<class T>() {
    auto* const output = args.output.as<T>();
    const auto* const input = args.input.as<T>();
    const auto* const weight = args.weight.as<T>();
    parallel_for(threads_, rows, [&](int64_t row) {
      rstd[row] = math_.of<T>().rms_norm(output + row * width, input + row * width, weight, width, args.eps);
    });
  });
}

void CpuDevice::rms_norm_backward(const RmsNormBackward& args, Stream /*stream*/) {
  const int64_t rows = args.input.rows();
  const int64_t width = args.weight.elements();
  require_shapes(args);
  const auto* const rstd = args.rstd.as<float>();
  with_float_type(args.input.dtype(), [&]<class T>() {
    auto* const input_gradient = args.input_gradient.as<T>();
    const auto* const input = args.input.as<T>();
    const auto* const weight = args.weight.as<T>();
    const RowSums sums{.rows = rows, .width = width, .threads = threads_, .math = math_, .memory = *memory_};
    const auto add = [&](const auto* output_gradient, auto backward) {
      sums.add_to(args.weight_gradient.as<float>(), [&](int64_t row, float* weight_gradient) {
        const int64_t at = row * width;
        backward(input_gradient + at, weight_gradient, output_gradient + at, input + at, weight, rstd[row], width);
      });
    };
    if (args.output_gradient.dtype() == DType::float32)
      add(args.output_gradient.as<float>(), math_.of<T>().rms_norm_backward_float32);
    else
      add(args.output_gradient.as<T>(), math_.of<T>().rms_norm_backward);
  });
}

void CpuDevice::rotary_angles(View cosine, View sine, View positions, double theta, Stream /*stream*/) {
  const int64_t rows = positions.elements();
  const int64_t half = cosine.row_elements();
  require_rotary_angles(cosine, sine, positions);
  auto* const cosines = cosine.as<float>();
  auto* const sines = sine.as<float>();
  const auto* const position = positions.as<int32_t>();
  const Allocation workspace(*memory_, rotary_angles_workspace(half), Purpose::workspace);
  auto* const frequency = static_cast<double*>(workspace.data());
  for (int64_t i = 0; i < half; ++i) {
    frequency[i] = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
  }
  parallel_for(threads_, rows, [&](int64_t row) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = position[row] * frequency[i];
      cosines[row * half + i] = static_cast<float>(std::cos(angle));
      sines[row * half + i] = static_cast<float>(std::sin(angle));
    }
  });
}

void CpuDevice::head_norm_rotary_forward(const HeadNormRotaryForward& args, Stream /*stream*/) {
  require_shapes(args);
  const int64_t heads = args.input.dim(1);
  const int64_t width = args.input.dim(2);
  auto* const rstd = args.rstd.as<float>();
  const auto* const cosine = args.cosine.as<float>();
  const auto* const sine = args.sine.as<float>();
  with_float_type(args.input.dtype(), [&]<class T>() {
    auto* const output = args.output.as<T>();
    const auto* const input = args.input.as<T>();
    const auto* const weight = args.weight.as<T>();
    parallel_for(threads_, args.input.rows(), [&](int64_t row) {
      const int64_t angles = row * (width / 2);
      for (int64_t head = row * heads; head < (row + 1) * heads; ++head) {
        rstd[head] = math_.of<T>().head_norm_rotary(output + head * width, input + head * width, weight,
                                                    cosine + angles, sine + angles, width, args.eps);
      }
    });
  });
}

void CpuDevice::head_norm_rotary_backward(const HeadNormRotaryBackward& args, Stream /*stream*/) {
  require_shapes(args);
  const int64_t heads = args.input.dim(1);
  const int64_t width = args.input.dim(2);
  const auto* const rstd = args.rstd.as<float>();
  const auto* const cosine = args.cosine.as<float>();
  const auto* const sine = args.sine.as<float>();
  const auto* const output_gradient = args.output_gradient.as<float>();
  with_float_type(args.input.dtype(), [&]<class T>() {
    auto* const input_gradient = args.input_gradient.as<T>();
    const auto* const input = args.input.as<T>();
    const auto* const weight = args.weight.as<T>();
    const RowSums sums{
        .rows = args.input.rows(), .width = width, .threads = threads_, .math = math_, .memory = *memory_};
    sums.add_to(args.weight_gradient.as<float>(), [&](int64_t row, float* weight_gradient) {
      const int64_t angles = row * (width / 2);
      for (int64_t head = row * heads; head < (row + 1) * heads; ++head) {
        const int64_t at = head * width;
        math_.of<T>().head_norm_rotary_backward(input_gradient + at, weight_gradient, output_gradient + at, input + at,
                                                weight, cosine + angles, sine + angles, rstd[head], width);
      }
    });
  });
}

}  // namespace annulus::cpu
