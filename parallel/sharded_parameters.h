// Parameters, gradients and optimiser state cut over all ranks (ZeRO-3: Rajbhandari, Rasley, Ruwase, He, arXiv
// 1910.02054, section 5). A unit's weights are gathered before use and dropped after; the gradient of each use is
// summed over the ranks, in the order of ranks, into the shard. Between two uses only shards exist.
#pragma once

#include <optional>
#include <vector>

#include "kernels/device.h"
#include "parallel/parameter_unit.h"
#include "parallel/shard_tensor.h"
#include "parallel/transport.h"

namespace annulus {

// Where what a rank keeps between two uses lies.
struct ParameterPlaces {
  Place weights = Place::device;    // in the model's dtype; where that is float32 and the place is the same, the master
                                    // serves
  Place gradients = Place::device;  // of the shards; a unit's whole gradient is on the device until it is complete
  Place optimizer = Place::device;  // master weights and both moments
  friend bool operator==(const ParameterPlaces&, const ParameterPlaces&) = default;
};

// One rank's part of a unit; every tensor is (shard_elements).
struct ParameterShard {
  ShardTensor master;    // float32
  ShardTensor moment1;   // float32
  ShardTensor moment2;   // float32
  ShardTensor gradient;  // float32, summed over ranks and micro-batches, not yet scaled
  ShardTensor rounded;   // the weights in the model's dtype, unless the master serves: then it is empty
  std::vector<ParameterPart> parts;

  [[nodiscard]] bool has_rounded() const { return rounded.elements() > 0; }
  [[nodiscard]] const ShardTensor& weights() const { return has_rounded() ? rounded : master; }
};

class ShardedParameters {
 public:
  // Makes the shards, all zero.
  ShardedParameters(Device& device, Transport& transport, DType dtype, std::vector<ParameterUnit> units,
                    const ParameterPlaces& places, Stream stream);

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
    Transfer loaded;  // this rank's part from storage; the exchange begins once it is here
    Request request;
  };
  struct Reduction {
    size_t unit = 0;
    Tensor flat;      // this rank's whole gradient, being sent
    Tensor received;  // (ranks − 1, shard_elements): the others' parts for this rank
    Tensor sum;       // (shard_elements): the shard's gradient, where that is in storage
    Transfer loaded;  // what it was so far
    Request request;
  };
  struct Stored {
    Tensor gradient;
    Transfer transfer;
  };

  [[nodiscard]] bool alone() const { return transport_.size() == 1; }
  Transfer begin_gradient(const View& gradient, size_t unit, Stream stream);
  void store_gradient(size_t unit, Tensor gradient, Stream stream);
  void finish_reduction(Stream stream);
  void exchange_weights(Gathered& gathered, size_t unit, Stream stream);
  View rank_part(const View& flat, size_t unit, int rank) const;

  Device& device_;
  Transport& transport_;
  DType dtype_;
  std::vector<ParameterUnit> units_;
  std::vector<ParameterShard> shards_;
  std::vector<std::optional<Gathered>> gathered_;  // by unit
  std::vector<Tensor> open_gradients_;             // by unit
  std::vector<bool> gradient_began_;               // by unit: there is a sum in storage to add to
  std::optional<Reduction> reduction_;             // at most one is on its way
  Stored stored_;                                  // a gradient that is being written
};

// values (ranks, n) float64: every rank fills its own row, then has them all.
void gather_rows(const View& values, Transport& transport, Stream stream);

}  // namespace annulus
