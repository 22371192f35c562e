#include "kernels/cuda/device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/cuda/memory.h"
#include "kernels/cuda/storage.h"
#include "kernels/cuda/workspace.h"
#include "kernels/shapes.h"

namespace annulus {

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options) {
  return std::make_unique<cuda::CudaDevice>(options);
}

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options, MemoryPlan plan) {
  return std::make_unique<cuda::CudaDevice>(options, std::move(plan));
}

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

GpuMemory cuda_memory(int gpu) {
  size_t available = 0, total = 0;
  ANNULUS_CUDA_CHECK(cudaSetDevice(gpu));
  ANNULUS_CUDA_CHECK(cudaMemGetInfo(&available, &total));
  return {.available = static_cast<int64_t>(available), .total = static_cast<int64_t>(total)};
}

namespace cuda {
namespace {

constexpr int oldest_major = 8;  // of the compute capability: bfloat16 in mma.sync, and cp.async

StreamHandle make_compute_stream(int gpu) {
  int count = 0;
  ANNULUS_CUDA_CHECK(cudaGetDeviceCount(&count));
  if (gpu < 0 || gpu >= count) {
    throw EnvironmentError("there is no GPU " + std::to_string(gpu) + " among the " + std::to_string(count) +
                           " of this machine; start at most as many ranks on it as it has GPUs, or use "
                           "runtime.device=cpu");
  }
  int major = 0;
  ANNULUS_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  if (major < oldest_major) {
    throw EnvironmentError("GPU " + std::to_string(gpu) + " has compute capability " + std::to_string(major) +
                           ".x, and 8.0 (A100) is the oldest that is supported; use runtime.device=cpu");
  }
  ANNULUS_CUDA_CHECK(cudaSetDevice(gpu));
  return make_stream();
}

std::optional<int> attention_multiprocessors(const DeviceOptions& options) {
  if (options.reserved_multiprocessors == 0) return std::nullopt;
  int all = 0;
  ANNULUS_CUDA_CHECK(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, options.gpu));
  return std::max(1, all - options.reserved_multiprocessors);
}

}  // namespace

CudaDevice::CudaDevice(const DeviceOptions& options)
    : gpu_(options.gpu),
      stream_(make_compute_stream(gpu_)),
      attention_multiprocessors_(attention_multiprocessors(options)),
      memory_(std::make_unique<CudaMemory>(options.poison, stream_.get())) {}

CudaDevice::CudaDevice(const DeviceOptions& options, MemoryPlan plan)
    : gpu_(options.gpu),
      stream_(make_compute_stream(gpu_)),
      attention_multiprocessors_(attention_multiprocessors(options)) {
  const StoredBytes stored = plan.stored;
  auto block = make_arena_block(plan.extent, stream_.get());
  memory_ = std::make_unique<PlannedArena>(std::move(plan), options.poison, std::move(block));
  if (stored.host > 0) host_ = make_host_storage(stored.host, *memory_);
  if (stored.disk > 0) {
    disk_ = std::make_unique<FileStorage>(options.offload_directory, stored.disk, *memory_, make_chunk_access(gpu_));
  }
}

Storage& CudaDevice::storage(Place place) {
  const std::unique_ptr<Storage>& storage = place == Place::host ? host_ : disk_;
  require(place != Place::device && storage != nullptr, "a run stores what its plan says and nothing else");
  return *storage;
}

// What is under way still uses the memory that goes with the device.
CudaDevice::~CudaDevice() {
  cudaStreamSynchronize(stream_.get());
}

std::string CudaDevice::description() const {
  cudaDeviceProp properties{};
  ANNULUS_CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu_));
  return std::string("CUDA, GPU ") + std::to_string(gpu_) + ", " + properties.name + ", " +
         std::to_string(properties.multiProcessorCount) + " multiprocessors, " + matmul_.description();
}

void CudaDevice::upload(View destination, const void* source, Stream stream) {
  staging_.upload(destination.data(), source, destination.bytes(), stream_of(stream));
}

void CudaDevice::download(void* destination, View source, Stream stream) {
  staging_.download(destination, source.data(), source.bytes(), stream_of(stream));
}

void CudaDevice::fill_zero(View destination, Stream stream) {
  if (destination.empty()) return;
  ANNULUS_CUDA_CHECK(
      cudaMemsetAsync(destination.data(), 0, static_cast<size_t>(destination.bytes()), stream_of(stream)));
}

void CudaDevice::matmul(const Matmul& args, Stream stream) {
  require_shapes(args);
  if (args.c.empty()) return;
  const int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  if (k == 0) {
    if (!args.adds()) return fill_zero(args.c, stream);
    if (args.addend.data() != args.c.data()) copy(args.c, args.addend, stream);
    return;
  }
  const Allocation scratch(*memory_, matmul_workspace, Purpose::workspace);
  matmul_.run(args, scratch.data(), workspace_stream(stream));
}

}  // namespace cuda
}  // namespace annulus
