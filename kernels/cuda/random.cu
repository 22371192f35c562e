// Numbers that depend on nothing but their place.
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/philox.h"

namespace annulus::cuda {
namespace {

struct NormalKernel {
  float* destination;
  int64_t first, last;  // elements of the tensor
  uint64_t seed, sample;
  double deviation;
};

// A thread for each pair.
__global__ void fill_normal_kernel(NormalKernel args) {
  const int64_t pair = args.first / 2 + block_index() * block_threads() + thread_index();
  if (2 * pair >= args.last) return;
  const auto words = Philox::words(args.seed, RandomStream::initialization, args.sample, static_cast<uint32_t>(pair));
  constexpr double two_pi = 6.283185307179586476925;
  const double radius = args.deviation * sqrt(-2 * log((words[0] + 0.5) * 0x1p-32));
  const double angle = two_pi * (words[1] * 0x1p-32);
  if (2 * pair >= args.first) args.destination[2 * pair - args.first] = static_cast<float>(radius * cos(angle));
  if (2 * pair + 1 < args.last) args.destination[2 * pair + 1 - args.first] = static_cast<float>(radius * sin(angle));
}

}  // namespace

void CudaDevice::fill_normal(const NormalNumbers& args, Stream stream) {
  const int64_t n = args.destination.elements();
  if (n == 0) return;
  const int64_t pairs = (args.first + n + 1) / 2 - args.first / 2;
  launch(fill_normal_kernel, ceil_divide(pairs, most_threads), most_threads, 0, stream_of(stream),
         NormalKernel{.destination = args.destination.as<float>(),
                      .first = args.first,
                      .last = args.first + n,
                      .seed = args.seed,
                      .sample = args.sample,
                      .deviation = args.deviation});
}

}  // namespace annulus::cuda
