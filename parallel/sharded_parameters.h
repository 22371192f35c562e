// Parameters, gradients and optimiser state cut over all ranks (ZeRO-3: Rajbhandari, Rasley, Ruwase, He, arXiv
// 1910.02054, section 5). A unit's weights are gathered before use and dropped after; the gradient of each use is
// summed over the ranks, in the order of ranks, into the shard. Between two uses only shards exist.
#pragma once

#include <optional>
#include <vector>

#include "kernels/device.h"
#include "parallel/parameter_unit.h"
#include "parallel/transport.h"

namespace annulus {

// One rank's part of a unit; every tensor is (shard_elements).
struct ParameterShard {
  Tensor master;    // float32
  Tensor moment1;   // float32
  Tensor moment2;   // float32
  Tensor gradient;  // float32, summed over ranks and micro-batches, not yet scaled
  Tensor rounded;   // the weights in the model's dtype, unless that is float32: then the master serves
  std::vector<ParameterPart> parts;

  [[nodiscard]] const View& weights() const { return rounded->empty() ? master.view() : rounded.view(); }
};

class ShardedParameters {
 public:
  // Allocates the shards; moments are zero, masters are not set.
  ShardedParameters(Device& device, Transport& transport, DType dtype, std::vector<ParameterUnit> units, Stream stream);

  [[nodiscard]] const std::vector<ParameterUnit>& units() const { return units_; }
  [[nodiscard]] ParameterShard& shard(size_t unit) { return shards_[unit]; }

  // Starts gathering a unit, so that weights() finds it there. A unit that is here or on its way is left alone.
  void prefetch(size_t unit, Stream stream);

  // The unit's whole flat buffer, gathered; valid until drop().
  View weights(size_t unit, Stream stream);
  void drop(size_t unit);

  void clear_gradients(Stream stream);

  // A whole flat float32 buffer to add the gradient of one use of the unit to; reduce() sends it on its way to the
  // shards.
  View gradient(size_t unit, Stream stream);
  void reduce(size_t unit, Stream stream);

  // Every gradient that was on its way has been added.
  void finish_gradients(Stream stream);

 private:
  struct Gathered {
    Tensor flat;
    Request request;
  };
  struct Reduction {
    size_t unit = 0;
    Tensor flat;      // this rank's whole gradient, being sent
    Tensor received;  // (ranks − 1, shard_elements): the others' parts for this rank
    Request request;
  };

  View rank_part(const View& flat, size_t unit, int rank) const;

  Device& device_;
  Transport& transport_;
  DType dtype_;
  std::vector<ParameterUnit> units_;
  std::vector<ParameterShard> shards_;
  std::vector<std::optional<Gathered>> gathered_;  // by unit
  std::vector<Tensor> open_gradients_;             // by unit
  std::optional<Reduction> reduction_;             // at most one is on its way
};

// values (ranks, n) float64: every rank fills its own row, then has them all.
void gather_rows(const View& values, Transport& transport, Stream stream);

}  // namespace annulus
