// An order of execution on a device.
#pragma once

namespace annulus {

// Operations on one stream run in the order of their calls. Without a handle: the compute stream of the device that it
// is given to.
struct Stream {
  void* handle = nullptr;
};

}  // namespace annulus
