// Attention over a sequence that is cut over ranks. The keys and values of the other ranks pass by, one owner a step,
// each step one more call on the same running state; in backward the gradients of passing keys go straight back to
// their owner. While a step computes, the next step's keys are arriving and the previous step's key gradients are on
// their way home.
#pragma once

#include <span>
#include <vector>

#include "kernels/device.h"
#include "parallel/mesh.h"
#include "parallel/ring_schedule.h"
#include "parallel/transport.h"

namespace annulus {

// One mask as a rank holds it: the ranges of its own rows on the device, and what has to travel.
struct LocalMask {
  Tensor ranges;  // (rows, 4) int32, global coordinates
  RingSchedule schedule;
  int64_t most_passing = 0;  // rows of one other rank's keys that any mask with this window needs: most_passing_rows
};

struct RingAttentionForward {
  View query;  // (rows, heads, head_dim)
  View key;    // (rows, kv_heads, head_dim)
  View value;  // (rows, kv_heads, head_dim)
  float scale = 1;
  View output;   // (rows, heads, head_dim): written
  View log_sum;  // (rows, heads) float32: written
};

struct RingAttentionBackward {
  View query;  // (rows, heads, head_dim)
  View key;    // (rows, kv_heads, head_dim)
  View value;  // (rows, kv_heads, head_dim)
  float scale = 1;
  View log_sum;          // (rows, heads) float32, from forward
  View delta;            // (rows, heads) float32, from Device::attention_delta: forward's output is not needed any more
  View output_gradient;  // (rows, heads, head_dim)
  View query_gradient;   // (rows, heads, head_dim) float32: written
  View key_gradient;     // (rows, kv_heads, head_dim) float32: written
  View value_gradient;   // (rows, kv_heads, head_dim) float32: written
};

class RingAttention {
 public:
  RingAttention(Device& device, Transport& transport, const Mesh& mesh)
      : device_(device), transport_(transport), mesh_(mesh) {}

  void forward(const RingAttentionForward& args, const LocalMask& mask, Stream stream);
  void backward(const RingAttentionBackward& args, const LocalMask& mask, Stream stream);

 private:
  Device& device_;
  Transport& transport_;
  Mesh mesh_;
};

}  // namespace annulus
