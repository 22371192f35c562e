// A training step, top to bottom.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "parallel/ring_attention.h"
#include "parallel/sharded_parameters.h"
#include "parallel/transport.h"
#include "runtime/batch.h"
#include "runtime/model/decoder.h"
#include "runtime/run.h"

namespace annulus {

class Trainer {
 public:
  // Makes the shards; the weights are not set.
  Trainer(PreparedRun& run, Device& device, Transport& transport, Listener& listener);

  // From the model's files or from random numbers.
  void set_weights();

  // Step `step`, from 1. Throws, with the weights as they were, where the gradient is not finite or nothing has an
  // answer.
  StepReport step(int64_t step);

  [[nodiscard]] ShardedParameters& parameters() { return parameters_; }
  void save_gradients(const std::filesystem::path& path);  // of the last step, before clipping
  void save_model(const std::filesystem::path& directory);

  // These take the memory that setting weights and saving take, and nothing else.
  void rehearse_set_weights();
  void rehearse_save();

 private:
  // What the ranks tell each other once a step; a row a rank.
  enum Figure : int64_t { loss, answers, tokens, squares, peak_bytes, figures };

  struct Outcome {
    std::vector<double> rows;    // (ranks, figures)
    std::vector<double> totals;  // (figures)
    double norm = 0;
  };

  static constexpr int64_t seconds_of_rank = sizeof(StepReport::Seconds) / sizeof(double);
  // rows (ranks, seconds_of_rank) float64: what every rank spent of the step that just ended, after `elapsed` seconds
  // here.
  std::vector<StepReport::Seconds> gather_seconds(const View& rows, double elapsed);
  void accumulate_gradients(int64_t step, const View& own_figures);
  [[nodiscard]] std::vector<std::optional<Sequence>> read_sequences(int64_t step, int64_t micro_batch) const;
  void check(int64_t step, const Outcome& outcome) const;

  PreparedRun& run_;
  Device& device_;
  Transport& transport_;
  Listener& listener_;
  Stream stream_;
  ShardedParameters parameters_;
  RingAttention attention_;
  Decoder decoder_;
  BatchBuilder batches_;
  double answers_ = 0;  // of the last step: what its gradient is divided by
};

}  // namespace annulus
