// Attention on host memory: tiles of queries against tiles of keys, two matrix products a pair forward and five
// backward, with a pass of attention_tile.h between them. Semantics in kernels/attention.h; the order of sums is that
// of FlashAttention-2 (arXiv 2307.08691).
//
// Every result has the same bits for any number of threads. bfloat16 operands are multiplied as they are, with float32
// sums; probabilities and score gradients are rounded to bfloat16 only as operands of a product. Scratch comes from
// `memory`, its size follows from the shape of the queries, the number of kv heads and the number of threads.
// `progress` (may be empty) is called on the calling thread, about once for each pair of tiles it computes.
#pragma once

#include <functional>

#include "kernels/attention.h"
#include "kernels/memory.h"

namespace annulus::cpu {

void attention_forward(const AttentionForward& args, Memory& memory, int threads,
                       const std::function<void()>& progress);

void attention_backward(const AttentionBackward& args, Memory& memory, int threads,
                        const std::function<void()>& progress);

// Bytes of scratch that these take.
int64_t attention_forward_workspace(const AttentionForward& args, int threads);
int64_t attention_backward_workspace(const AttentionBackward& args, int threads);

// δ = Σ output · output_gradient over each head.
void attention_delta(View delta, View output, View output_gradient, int threads);

}  // namespace annulus::cpu
