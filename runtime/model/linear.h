// y = x·Wᵀ and what its backward needs, for weights stored (outputs, inputs). Activations of more than two dimensions
// count as (rows, everything else).
#pragma once

#include "kernels/device.h"

namespace annulus {

inline View as_matrix(const View& view) {
  return view.reshaped({view.rows(), view.row_elements()});
}

// output (rows, outputs) = input (rows, inputs)·weightᵀ + addend, which may be output itself, or nothing
inline void linear(Device& device, const View& output, const View& input, const View& weight, const View& addend,
                   Stream stream) {
  device.matmul({.c = as_matrix(output), .a = as_matrix(input), .b = weight, .transpose_b = true, .addend = addend},
                stream);
}

// input_gradient (rows, inputs) = output_gradient (rows, outputs)·weight + addend, which may be input_gradient itself,
// or nothing
inline void linear_input_gradient(Device& device, const View& input_gradient, const View& output_gradient,
                                  const View& weight, const View& addend, Stream stream) {
  device.matmul({.c = as_matrix(input_gradient), .a = as_matrix(output_gradient), .b = weight, .addend = addend},
                stream);
}

// weight_gradient (outputs, inputs) float32 += output_gradientᵀ·input
inline void linear_weight_gradient(Device& device, const View& weight_gradient, const View& output_gradient,
                                   const View& input, Stream stream) {
  device.matmul({.c = weight_gradient,
                 .a = as_matrix(output_gradient),
                 .b = as_matrix(input),
                 .transpose_a = true,
                 .addend = weight_gradient},
                stream);
}

}  // namespace annulus
