// The shards of a rank piece by piece, for what works on single elements: the optimiser and the norm of the gradient.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/device.h"
#include "parallel/sharded_parameters.h"

namespace annulus {

// Elements [begin, end) of a unit's shard, every view (end − begin). What is in storage has been copied here.
struct ShardWindow {
  size_t unit = 0;
  int64_t begin = 0, end = 0;
  View master;    // float32
  View moment1;   // float32
  View moment2;   // float32
  View gradient;  // float32
  View weights;   // in the model's dtype; may be the master itself
};

enum class WindowUse : uint8_t {
  read_gradients,  // the other views are empty
  update,          // reads all; what changes of master, moments and weights is kept
};

// Visits all shards in order, 64 MiB of float32 at a time wherever they are, so that sums over a window are the same
// bits. The next window is read, and the one before it written, while one is visited.
void for_each_window(ShardedParameters& parameters, Device& device, WindowUse use, Stream stream,
                     const std::function<void(const ShardWindow&)>& visit);

}  // namespace annulus
