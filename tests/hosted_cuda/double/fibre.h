// A context of execution with a stack of its own, to ThreadSanitizer a thread of its own. Whoever runs is left by
// switching to another; none of them is ever run by two threads at once.
#pragma once

#include <cstddef>
#include <functional>

namespace annulus::hosted {

class Fibre {
 public:
  // The thread that calls, which has its stack already.
  Fibre();

  // Runs `body` again and again, from its first switch on; `body` ends every round by switching to another.
  explicit Fibre(std::function<void()> body);

  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;
  ~Fibre();

  // Leaves this one, which is the one that runs, for `next`. Orders nothing. Returns when somebody switches back.
  void switch_to(Fibre& next);

 private:
  void arrived(void* from_context, Fibre* from);
  static void enter(void* from_context, Fibre* from, Fibre* self);
  friend struct Entry;

  std::function<void()> body_;
  void* mapping_ = nullptr;      // the stack and, below it, a page that must not be touched
  const void* stack_ = nullptr;  // its lowest address
  size_t stack_bytes_ = 0;
  void* context_ = nullptr;     // where to go on, while it does not run
  void* thread_ = nullptr;      // ThreadSanitizer's
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace annulus::hosted
