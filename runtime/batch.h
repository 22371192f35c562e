// What one micro-batch hands to a rank: its rows of arrays that were finished in global order. A micro-batch of several
// sequences is one row space, the sequences one after the other; their masks keep them apart.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "parallel/mesh.h"
#include "parallel/ring_attention.h"
#include "parallel/sequence_layout.h"
#include "runtime/data/sequences.h"
#include "runtime/model_config.h"
#include "runtime/settings.h"

namespace annulus {

struct MicroBatch {
  Tensor tokens;                       // (rows) int32
  Tensor answers;                      // (rows) int32; no_label where there is none
  Tensor weights;                      // (rows) float32: what a row's loss counts
  Tensor cosine;                       // (rows, head_dim/2) float32: rotary angles of the rows' positions
  Tensor sine;                         // (rows, head_dim/2) float32
  std::map<int64_t, LocalMask> masks;  // by window, 0: none
  int64_t answer_count = 0;            // of this rank's rows
  int64_t live_tokens = 0;             // of this rank's rows
};

class BatchBuilder {
 public:
  BatchBuilder(const Settings& settings, const ModelConfig& model, const Mesh& mesh, Device& device);

  [[nodiscard]] const SequenceLayout& layout() const { return layout_; }

  // `sequences`: one for each place of the micro-batch; a missing one becomes dead rows.
  [[nodiscard]] MicroBatch build(std::span<const std::optional<Sequence>> sequences, Stream stream) const;

 private:
  template <class T>
  Tensor upload_rows(std::span<const T> global, Shape row_shape, Stream stream) const;  // this rank's
  template <class T, class Condition>
  [[nodiscard]] int64_t count_rows(std::span<const T> global, Condition&& condition) const;  // of this rank's

  const ModelConfig& model_;
  Mesh mesh_;
  Device& device_;
  SequenceLayout layout_;
  int32_t pad_token_;
};

// The keys each row of `pieces` sees: those of its piece up to itself, at most `window` of them (0: all). Rows and keys
// are counted from `first_row`; rows outside the pieces see none.
void causal_mask(std::span<const Piece> pieces, int64_t window, int64_t first_row, std::span<KeyRanges> rows);

}  // namespace annulus
