// Attention backward: its two kernels, once for every part of the keys.
#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/device.h"

namespace annulus::cuda {

void CudaDevice::attention_backward(const AttentionBackward& args, Stream stream) {
  require_supported(args);
  for_each_launch(args.keys.size(), [&](size_t begin, size_t count, bool first, bool /*last*/) {
    AttentionBackward part = args;
    part.first = args.first && first;
    part.keys = args.keys.subspan(begin, count);
    part.key_gradients = args.key_gradients.subspan(begin, count);
    queue_query_gradient(part, attention_multiprocessors_, stream_of(stream));
    queue_key_gradients(part, attention_multiprocessors_, stream_of(stream));
  });
}

}  // namespace annulus::cuda
