// Ranks as threads of one process, each with a device: the CPU and messages between threads, or hosted CUDA and hosted
// NCCL, by what the test is linked with. A test reads and writes device memory through upload and download alone.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "parallel/transport.h"

namespace annulus {

// Runs `body` once for each of `ranks` ranks; buffers are poisoned. The first failure is rethrown.
void run_ranks(int ranks, const std::function<void(Device&, Transport&)>& body);

// A device that ranks may share, for the thread that calls.
std::unique_ptr<Device> make_shared_device();

// A view's elements, once all that was queued before has run.
template <class T>
std::vector<T> downloaded(Device& device, const View& view) {
  std::vector<T> values(static_cast<size_t>(view.elements()));
  require(view.dtype() == dtype_of<T>(), "a view is downloaded as another dtype than its own");
  device.download(values.data(), view, device.compute_stream());
  return values;
}

template <class T>
void upload(Device& device, const View& view, const std::vector<T>& values) {
  require(view.dtype() == dtype_of<T>() && view.elements() == static_cast<int64_t>(values.size()),
          "a view is uploaded from other elements than its own");
  device.upload(view, values.data(), device.compute_stream());
}

}  // namespace annulus
