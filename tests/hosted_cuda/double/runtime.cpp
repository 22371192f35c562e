// The calls of the CUDA runtime about streams, events, copies and launches.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/hosted_cuda/double/machine.h"
#include "tests/hosted_cuda/double/order.h"
#include "tests/hosted_cuda/double/seed.h"
#include "tests/hosted_cuda/double/stream.h"

namespace annulus::hosted {
namespace {

using Kind = CUstream_st::Kind;

#define RETURN_IF_FAILED(call) \
  if (const cudaError_t error = (call); error != cudaSuccess) return error

std::shared_ptr<Completion> latest(cudaEvent_t event) {
  const std::scoped_lock lock(event->mutex);
  return event->latest;
}

cudaError_t synchronise(cudaStream_t stream) {
  count_host_synchronisation();
  stream->record()->wait();
  return sticky();
}

cudaMemcpyKind kind_between(Place to, Place from) {
  if (from == Place::device) return to == Place::device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
  return to == Place::device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
}

cudaError_t check_kind(cudaMemcpyKind said, cudaMemcpyKind real) {
  if (said == cudaMemcpyDefault || said == real) return cudaSuccess;
  return fail(cudaErrorInvalidValue, "cudaMemcpyAsync says another direction than its pointers");
}

void copy(void* to, const void* from, size_t bytes) {
  {
    const Shown shown;
    reads(from, bytes);
    writes(to, bytes);
  }
  std::memcpy(to, from, bytes);
}

// From pageable memory: CUDA has read it all when the call returns.
void copy_staged(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  {
    const Shown shown;
    reads(from, bytes);
  }
  const auto* begin = static_cast<const std::byte*>(from);
  auto staged = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
  stream->enqueue(Kind::copy, [to, staged] {
    {
      const Shown shown;
      writes(to, staged->size());
    }
    std::memcpy(to, staged->data(), staged->size());
  });
}

cudaError_t copy_async(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  RETURN_IF_FAILED(check(stream));
  Range target, source;
  RETURN_IF_FAILED(locate(to, bytes, target));
  RETURN_IF_FAILED(locate(from, bytes, source));
  RETURN_IF_FAILED(check_kind(kind, kind_between(target.place, source.place)));
  if (source.place == Place::pageable) {
    copy_staged(to, from, bytes, stream);
  } else {
    stream->enqueue(Kind::copy, [=] { copy(to, from, bytes); });
  }
  return target.place == Place::pageable ? synchronise(stream) : cudaSuccess;
}

cudaError_t set_async(void* to, int value, size_t bytes, cudaStream_t stream) {
  RETURN_IF_FAILED(check(stream));
  Range target;
  RETURN_IF_FAILED(locate(to, bytes, target));
  if (target.place != Place::device)
    return fail(cudaErrorInvalidValue, "cudaMemsetAsync of memory that is not the device's");
  stream->enqueue(Kind::copy, [=] {
    {
      const Shown shown;
      writes(to, bytes);
    }
    std::memset(to, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t check_same_device(cudaStream_t stream) {
  if (stream->device() == current_device()) return cudaSuccess;
  return fail(cudaErrorInvalidResourceHandle, "a stream of device " + std::to_string(stream->device()) +
                                                  " while the thread's is " + std::to_string(current_device()));
}

// How many bytes of dynamic shared memory a kernel may have.
int allowed_shared_bytes(const void* kernel) {
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  const auto found = machine.dynamic_shared_bytes.find(kernel);
  return std::max(48 << 10, found == machine.dynamic_shared_bytes.end() ? 0 : found->second);
}

cudaError_t check_launch(const cudaLaunchConfig_t& config, const void* address) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  if (grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1) {
    return fail(cudaErrorInvalidConfiguration, "the hosted device has one dimension for blocks and threads");
  }
  if (grid.x < 1 || grid.x > 0x7FFFFFFFU || block.x < 1 || block.x > static_cast<unsigned>(most_threads)) {
    return fail(cudaErrorInvalidConfiguration, "a launch of " + std::to_string(grid.x) + " blocks of " +
                                                   std::to_string(block.x) + " threads; the hosted device takes " +
                                                   std::to_string(most_threads) + " threads at most");
  }
  const int allowed = allowed_shared_bytes(address);
  if (config.dynamicSmemBytes <= static_cast<size_t>(allowed)) return cudaSuccess;
  return fail(cudaErrorInvalidValue, std::to_string(config.dynamicSmemBytes) + " bytes of shared memory where " +
                                         std::to_string(allowed) + " are allowed to the kernel");
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* address, std::function<void()> kernel) {
  const Hidden hidden;
  RETURN_IF_FAILED(check(config.stream));
  RETURN_IF_FAILED(check_same_device(config.stream));
  RETURN_IF_FAILED(check_launch(config, address));
  count_launched_blocks(config.gridDim.x);
  cudaStream_t stream = config.stream;
  stream->enqueue(Kind::kernel, [stream, kernel = std::move(kernel), blocks = config.gridDim.x,
                                 threads = config.blockDim.x, shared = config.dynamicSmemBytes] {
    Grid grid{.kernel = &kernel,
              .blocks = blocks,
              .threads = static_cast<int>(threads),
              .shared_bytes = static_cast<int64_t>(shared),
              .seed = seed()};
    const std::string fault = stream->run(grid);
    if (!fault.empty()) fail_for_good(cudaErrorLaunchFailure, "a kernel failed: " + fault);
  });
  return cudaSuccess;
}

}  // namespace annulus::hosted

using namespace annulus::hosted;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const Hidden hidden;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > 163 << 10) {
    return fail(cudaErrorInvalidValue,
                "cudaFuncSetAttribute: the hosted device knows only dynamic shared memory, to 163 KiB");
  }
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  machine.dynamic_shared_bytes[function] = value;
  return cudaSuccess;
}

// By threads and shared memory, of which each block takes 1 KiB for itself, as on an A100; there are no registers here.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t shared_bytes) {
  const Hidden hidden;
  if (threads < 1 || threads > most_threads || shared_bytes > static_cast<size_t>(allowed_shared_bytes(function))) {
    return fail(cudaErrorInvalidValue, "the occupancy of a kernel that cannot be launched in this way");
  }
  *blocks = std::min({32, 2048 / threads, (164 << 10) / (static_cast<int>(shared_bytes) + 1024)});
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

// Priorities have no effect here. Streams never wait for the default stream, which nobody may use.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
  const Hidden hidden;
  RETURN_IF_FAILED(sticky());
  if (flags != cudaStreamNonBlocking) return fail(cudaErrorInvalidValue, "a stream that waits for the default stream");
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  Device& device = machine.devices[current_device()];
  *stream = new CUstream_st(current_device(), device.streams_created++);
  device.streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

// Returns at once; what is queued still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Hidden hidden;
  {
    Machine& machine = Machine::instance();
    const std::scoped_lock lock(machine.mutex);
    for (auto& [number, device] : machine.devices) {
      if (device.streams.erase(stream) == 0) continue;
      stream->close();
      return machine.sticky;
    }
  }
  return fail(cudaErrorInvalidResourceHandle, "a stream that does not exist");
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Hidden hidden;
  RETURN_IF_FAILED(check(stream));
  return synchronise(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Hidden hidden;
  RETURN_IF_FAILED(check(stream));
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  const Hidden hidden;
  std::vector<std::shared_ptr<Completion>> completions;
  Machine& machine = Machine::instance();
  count_host_synchronisation();
  {
    // Another thread may destroy its streams meanwhile: those that are still listed take the marker first.
    const std::scoped_lock lock(machine.mutex);
    for (cudaStream_t stream : machine.devices[current_device()].streams) {
      completions.push_back(stream->record_in_order());
    }
  }
  for (const auto& completion : completions) completion->wait();
  return sticky();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  const Hidden hidden;
  RETURN_IF_FAILED(sticky());
  *event = new CUevent_st;
  (*event)->device = current_device();
  Machine& machine = Machine::instance();
  const std::scoped_lock lock(machine.mutex);
  machine.devices[current_device()].events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Hidden hidden;
  Machine& machine = Machine::instance();
  {
    const std::scoped_lock lock(machine.mutex);
    for (auto& [number, device] : machine.devices) {
      if (device.events.erase(event) == 0) continue;
      delete event;
      return machine.sticky;
    }
  }
  return fail(cudaErrorInvalidResourceHandle, "an event that does not exist");
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Hidden hidden;
  RETURN_IF_FAILED(check(event));
  RETURN_IF_FAILED(check(stream));
  if (event->device != stream->device()) return fail(cudaErrorInvalidResourceHandle, "an event of another device");
  auto recorded = stream->record();
  const std::scoped_lock lock(event->mutex);
  event->latest = std::move(recorded);
  return cudaSuccess;
}

// Waits for what was recorded last before this call, for nothing if nothing was.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const Hidden hidden;
  RETURN_IF_FAILED(check(stream));
  RETURN_IF_FAILED(check(event));
  if (auto completion = latest(event)) stream->enqueue(Kind::marker, [completion] { completion->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Hidden hidden;
  RETURN_IF_FAILED(check(event));
  count_host_synchronisation();
  if (const auto completion = latest(event)) completion->wait();
  return sticky();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Hidden hidden;
  RETURN_IF_FAILED(check(event));
  const auto completion = latest(event);
  return !completion || completion->is_done() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Hidden hidden;
  RETURN_IF_FAILED(check(begin));
  RETURN_IF_FAILED(check(end));
  const auto first = latest(begin), last = latest(end);
  if (!first || !last) return fail(cudaErrorInvalidResourceHandle, "an event that was never recorded");
  if (!first->is_done() || !last->is_done()) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(last->time() - first->time()).count();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Hidden hidden;
  return copy_async(to, from, bytes, kind, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const Hidden hidden;
  return set_async(to, value, bytes, stream);
}

}  // extern "C"
