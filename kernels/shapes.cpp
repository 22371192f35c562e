#include "kernels/shapes.h"

namespace annulus {
namespace {

// The shapes that forward and backward of a head's norm share.
template <class Args>
void require_heads(const Args& args) {
  const int64_t rows = args.input.rows();
  const int64_t width = args.weight.elements();
  require(args.input.shape().rank() == 3 && args.input.dim(2) == width && width % 2 == 0 &&
              args.rstd.elements() * width == args.input.elements(),
          "a head's norm has a weight for each element of a head and heads of even size");
  require(args.cosine.elements() == rows * width / 2 && args.sine.elements() == rows * width / 2,
          "there is one row of angles a row");
}

// The shapes that forward and backward of attention share.
template <class Args>
void require_attention(const Args& args) {
  const View& query = args.query;
  require(query.shape().rank() == 3, "attention has queries (rows, heads, head_dim)");
  require(args.ranges.rows() == query.rows() && args.ranges.elements() == 4 * query.rows(),
          "each query row has its ranges of keys");
  for (const KeySlice& slice : args.keys) {
    const int64_t kv_heads = args.keys.front().key.dim(1);
    const Shape shape{slice.key.rows(), kv_heads, query.dim(2)};
    require(slice.key.shape() == shape && slice.value.shape() == shape, "attention keys and values have one shape");
    require(query.dim(1) % kv_heads == 0, "attention has a multiple of kv_heads query heads");
    require(slice.key.dtype() == query.dtype() && slice.value.dtype() == query.dtype(),
            "attention operands have one dtype");
  }
}

}  // namespace

void require_shapes(const Matmul& args) {
  const auto& [c, a, b, transpose_a, transpose_b, addend] = args;
  require(c.shape().rank() == 2 && a.shape().rank() == 2 && b.shape().rank() == 2, "a matmul has matrices");
  const int64_t k = a.dim(transpose_a ? 0 : 1);
  require(a.dim(transpose_a ? 1 : 0) == c.dim(0) && b.dim(transpose_b ? 0 : 1) == c.dim(1) &&
              b.dim(transpose_b ? 1 : 0) == k,
          "the shapes of a matmul fit together");
  require(a.dtype() == b.dtype() && (c.dtype() == a.dtype() || c.dtype() == DType::float32),
          "a matmul has factors of one dtype and a result of the same or float32");
  require(!args.adds() || (addend.shape() == c.shape() && addend.dtype() == c.dtype()),
          "what is added to a matmul is like its result");
}

void require_shapes(const RmsNormForward& args) {
  const int64_t rows = args.input.rows(), width = args.weight.elements();
  require(
      args.input.elements() == rows * width && args.output.elements() == rows * width && args.rstd.elements() == rows,
      "the shapes of a norm fit together");
}

void require_shapes(const RmsNormBackward& args) {
  const int64_t rows = args.input.rows(), width = args.weight.elements();
  require(args.input.elements() == rows * width && args.input_gradient.elements() == rows * width &&
              args.output_gradient.elements() == rows * width && args.rstd.elements() == rows &&
              args.weight_gradient.elements() == width,
          "the shapes of a norm's gradients fit together");
}

void require_shapes(const HeadNormRotaryForward& args) {
  require_heads(args);
  require(args.output.elements() == args.input.elements(), "normalised heads have the shape of the input");
}

void require_shapes(const HeadNormRotaryBackward& args) {
  require_heads(args);
  require(args.input_gradient.elements() == args.input.elements() &&
              args.output_gradient.elements() == args.input.elements() &&
              args.weight_gradient.elements() == args.weight.elements(),
          "the gradients of normalised heads have the shapes of what they belong to");
}

void require_shapes(const AttentionForward& args) {
  require_attention(args);
  const int64_t scalars = args.query.dim(0) * args.query.dim(1);
  if (!args.first || !args.last) {
    require(args.state.output.elements() == args.query.elements() && args.state.row_max.elements() == scalars &&
                args.state.row_sum.elements() == scalars,
            "attention that is resumed has a state");
  }
  if (!args.last) return;
  require(args.output.elements() == args.query.elements() && args.output.dtype() == args.query.dtype() &&
              args.log_sum.elements() == scalars,
          "attention has outputs like its queries");
}

void require_shapes(const AttentionBackward& args) {
  require_attention(args);
  const int64_t scalars = args.query.dim(0) * args.query.dim(1);
  require(args.log_sum.elements() == scalars && args.delta.elements() == scalars &&
              args.output_gradient.elements() == args.query.elements() &&
              args.output_gradient.dtype() == args.query.dtype() &&
              args.query_gradient.elements() == args.query.elements(),
          "the gradients of attention have the shapes of what they belong to");
  require(args.key_gradients.size() == args.keys.size(), "each slice of keys has a place for its gradients");
  for (size_t i = 0; i < args.keys.size(); ++i) {
    require(args.key_gradients[i].key.elements() == args.keys[i].key.elements() &&
                args.key_gradients[i].value.elements() == args.keys[i].value.elements(),
            "gradients of keys and values are as many as those");
  }
}

void require_shapes(const CrossEntropy& args) {
  const int64_t rows = args.logits.rows();
  require(args.losses.elements() == rows && args.labels.elements() == rows && args.weights.elements() == rows,
          "a row of logits has a loss, a label and a weight");
}

void require_shapes(const AdamW& args) {
  const int64_t n = args.master.elements();
  require(args.moment1.elements() == n && args.moment2.elements() == n && args.gradient.elements() == n &&
              args.weight.elements() == n,
          "a parameter, its gradient and its moments have as many elements");
  require(args.step >= 1, "steps count from 1");
}

void require_copy(const View& destination, const View& source) {
  require(destination.elements() == source.elements(), "a copy or a sum has as many elements as its source");
}

void require_sum_rows(const View& destination, const View& source) {
  require(source.elements() == source.rows() * destination.elements(), "a sum of rows is as wide as they are");
}

void require_embedding_forward(const View& output, const View& table, const View& tokens) {
  require(output.dtype() == table.dtype() && output.row_elements() == table.row_elements(),
          "an embedding's rows are those of its table");
  require(tokens.elements() == output.rows(), "an embedding has one token a row");
}

void require_embedding_backward(const View& table_gradient, const View& output_gradient, const View& tokens) {
  require(output_gradient.rows() == 0 || output_gradient.row_elements() == table_gradient.row_elements(),
          "an embedding's rows are those of its table");
  require(tokens.elements() == output_gradient.rows(), "an embedding has one token a row");
}

void require_rotary_angles(const View& cosine, const View& sine, const View& positions) {
  require(cosine.rows() == positions.elements() && sine.shape() == cosine.shape(),
          "there is one row of angles a position");
}

void require_swiglu(const View& output, const View& gate_up) {
  require(gate_up.elements() == 2 * output.elements(), "a gated activation has a gate and a value for each output");
}

}  // namespace annulus
