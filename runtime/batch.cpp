#include "runtime/batch.h"

#include <algorithm>

#include "kernels/narrow.h"

namespace annulus {
namespace {

// A micro-batch in global order.
struct GlobalRows {
  std::vector<int32_t> tokens, answers, positions;
  std::vector<float> weights;

  GlobalRows(int64_t rows, int32_t pad_token)
      : tokens(static_cast<size_t>(rows), pad_token),
        answers(static_cast<size_t>(rows), no_label),
        positions(static_cast<size_t>(rows), 0),
        weights(static_cast<size_t>(rows), 1.0F) {}

  void place(const Sequence& sequence, int64_t first_row) {
    std::copy(sequence.tokens.begin(), sequence.tokens.end(), tokens.begin() + first_row);
    std::copy(sequence.answers.begin(), sequence.answers.end(), answers.begin() + first_row);
    std::copy(sequence.positions.begin(), sequence.positions.end(), positions.begin() + first_row);
  }
};

}  // namespace

void causal_mask(std::span<const Piece> pieces, int64_t window, int64_t first_row, std::span<KeyRanges> rows) {
  for (const Piece& piece : pieces) {
    for (int64_t row = piece.begin; row < piece.end; ++row) {
      const int64_t begin = window == 0 ? piece.begin : std::max(piece.begin, row + 1 - window);
      const auto end = narrow<int32_t>(first_row + row + 1);
      rows[static_cast<size_t>(row)] = {narrow<int32_t>(first_row + begin), end, end, end};
    }
  }
}

BatchBuilder::BatchBuilder(const Settings& settings, const ModelConfig& model, const Mesh& mesh, Device& device)
    : model_(model),
      mesh_(mesh),
      device_(device),
      layout_(settings.parallel.layout, mesh.context_size, settings.train.micro_batch_size,
              settings.data.sequence_length),
      pad_token_(settings.data.pad_token_id) {}

template <class T>
Tensor BatchBuilder::upload_rows(std::span<const T> global, Shape row_shape, Stream stream) const {
  constexpr bool is_range = std::is_same_v<T, KeyRanges>;
  Tensor tensor = device_.allocate(row_shape.with_rows(layout_.local_rows()),
                                   is_range ? DType::int32 : dtype_of<std::conditional_t<is_range, int32_t, T>>(),
                                   Purpose::staging);
  int64_t row = 0;
  for (const Chunk& chunk : layout_.chunks(mesh_.context())) {
    device_.upload(tensor->slice(row, row + chunk.rows()), global.data() + chunk.begin, stream);
    row += chunk.rows();
  }
  return tensor;
}

template <class T, class Condition>
int64_t BatchBuilder::count_rows(std::span<const T> global, Condition&& condition) const {
  int64_t count = 0;
  for (const Chunk& chunk : layout_.chunks(mesh_.context())) {
    count += std::count_if(global.begin() + chunk.begin, global.begin() + chunk.end, condition);
  }
  return count;
}

MicroBatch BatchBuilder::build(std::span<const std::optional<Sequence>> sequences, Stream stream) const {
  GlobalRows rows(layout_.global_rows(), pad_token_);
  std::map<int64_t, std::vector<KeyRanges>> masks;
  for (const int64_t window : model_.layer_windows) masks[window].resize(static_cast<size_t>(layout_.global_rows()));
  for (size_t place = 0; place < sequences.size(); ++place) {
    if (!sequences[place]) continue;
    const int64_t first_row = static_cast<int64_t>(place) * layout_.padded_length();
    rows.place(*sequences[place], first_row);
    for (auto& [window, mask] : masks) {
      causal_mask(sequences[place]->pieces, window, first_row, std::span(mask).subspan(static_cast<size_t>(first_row)));
    }
  }

  MicroBatch batch;
  const Shape row{1};
  batch.tokens = upload_rows<int32_t>(rows.tokens, row, stream);
  batch.answers = upload_rows<int32_t>(rows.answers, row, stream);
  batch.weights = upload_rows<float>(rows.weights, row, stream);
  const Tensor positions = upload_rows<int32_t>(rows.positions, row, stream);
  const Shape angles{layout_.local_rows(), model_.head_dim / 2};
  batch.cosine = device_.allocate(angles, DType::float32, Purpose::staging);
  batch.sine = device_.allocate(angles, DType::float32, Purpose::staging);
  device_.rotary_angles(batch.cosine, batch.sine, positions, model_.rope_theta, stream);
  for (const auto& [window, mask] : masks) {
    batch.masks.emplace(window, LocalMask{.ranges = upload_rows<KeyRanges>(mask, {1, 4}, stream),
                                          .schedule = RingSchedule(layout_, mask, mesh_.context()),
                                          .most_passing = most_passing_rows(layout_, window)});
  }
  batch.answer_count = count_rows<int32_t>(rows.answers, [](int32_t answer) { return answer != no_label; });
  batch.live_tokens =
      count_rows<KeyRanges>(masks.begin()->second, [](const KeyRanges& r) { return r.end0 > r.begin0; });
  return batch;
}

}  // namespace annulus
