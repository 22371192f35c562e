// What ThreadSanitizer and AddressSanitizer are told. The double is not instrumented, and its own locks and memory must
// not order what a GPU would leave unordered: they are used under Hidden, and only the orders CUDA promises are
// published, by release() and acquire() on an address that stands for the promise.
#pragma once

#include <cstddef>

extern "C" {
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreSyncBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreSyncEnd(const char* file, int line);
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
[[gnu::weak]] void __tsan_read_range(void* address, unsigned long size);
[[gnu::weak]] void __tsan_write_range(void* address, unsigned long size);
}

namespace annulus::hosted {

inline void hide() {
  if (AnnotateIgnoreSyncBegin == nullptr) return;
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}

inline void show() {
  if (AnnotateIgnoreSyncEnd == nullptr) return;
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

// Nothing this thread does in its scope exists for ThreadSanitizer.
class Hidden {
 public:
  Hidden() { hide(); }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
  ~Hidden() { show(); }
};

// Ends the surrounding Hidden for its scope.
class Shown {
 public:
  Shown() { show(); }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  ~Shown() { hide(); }
};

// Everything this thread did until here ...
inline void release(void* promise) {
  if (__tsan_release != nullptr) __tsan_release(promise);
}

// ... is before what a thread does that has acquired it. Neither has an effect under Hidden.
inline void acquire(void* promise) {
  if (__tsan_acquire != nullptr) __tsan_acquire(promise);
}

inline void reads(const void* address, size_t bytes) {
  if (__tsan_read_range != nullptr) __tsan_read_range(const_cast<void*>(address), bytes);
}

inline void writes(void* address, size_t bytes) {
  if (__tsan_write_range != nullptr) __tsan_write_range(address, bytes);
}

}  // namespace annulus::hosted
