// An order of execution on a device.
#pragma once

namespace annulus {

// Operations on one stream run in the order of their calls.
struct Stream {
  void* handle = nullptr;
};

}  // namespace annulus
