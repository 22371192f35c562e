// Included before every .cu file that is compiled as C++ for the hosted device.
#pragma once

// The toolkit's own takes the address of the arguments and leaves their types to the linker.
#define cudaLaunchKernelEx cudaLaunchKernelExOfTheToolkit
#include <cuda_runtime.h>
#undef cudaLaunchKernelEx
#undef __launch_bounds__
#define __launch_bounds__(...)

#include <functional>
#include <utility>

namespace annulus::hosted {

// Queues `kernel`, which already has its arguments; `address` is that of its function.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* address, std::function<void()> kernel);

}  // namespace annulus::hosted

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const auto bind = [&](Parameters... converted) {
    return annulus::hosted::launch(*config, reinterpret_cast<const void*>(kernel), [=] { kernel(converted...); });
  };
  return bind(std::forward<Arguments>(arguments)...);
}
