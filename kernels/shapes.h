// What every device demands of the shapes and dtypes it is given; an InternalError where they do not fit together.
#pragma once

#include "kernels/device.h"

namespace annulus {

void require_shapes(const Matmul& args);
void require_shapes(const RmsNormForward& args);
void require_shapes(const RmsNormBackward& args);
void require_shapes(const HeadNormRotaryForward& args);
void require_shapes(const HeadNormRotaryBackward& args);
void require_shapes(const AttentionForward& args);
void require_shapes(const AttentionBackward& args);
void require_shapes(const CrossEntropy& args);
void require_shapes(const AdamW& args);

void require_copy(const View& destination, const View& source);
void require_sum_rows(const View& destination, const View& source);
void require_embedding_forward(const View& output, const View& table, const View& tokens);
void require_embedding_backward(const View& table_gradient, const View& output_gradient, const View& tokens);
void require_rotary_angles(const View& cosine, const View& sine, const View& positions);
void require_swiglu(const View& output, const View& gate_up);

}  // namespace annulus
