// Owns a handle of a C library.
#pragma once

#include <utility>

namespace annulus {

// `destroy(handle)` runs when the owner goes, unless there is no handle; what it returns is not looked at, since a
// destructor has nobody to tell.
template <class T, auto destroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() {
    if (handle_ != T{}) destroy(handle_);
  }

  [[nodiscard]] T get() const { return handle_; }

 private:
  T handle_{};
};

}  // namespace annulus
