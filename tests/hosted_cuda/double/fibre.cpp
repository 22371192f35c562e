#include "tests/hosted_cuda/double/fibre.h"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>
#include <new>
#include <utility>

extern "C" {
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* size);
}

namespace annulus::hosted {

namespace context = boost::context::detail;

constexpr size_t stack_bytes = size_t{256} << 10;  // sanitizers make frames several times as large
constexpr unsigned without_order = 1;              // __tsan_switch_to_fiber_no_sync

struct Passage {
  Fibre* from;
  Fibre* to;
};

struct Entry {
  static void run(context::transfer_t transfer) {
    const auto passage = *static_cast<Passage*>(transfer.data);
    Fibre::enter(transfer.fctx, passage.from, passage.to);
  }
};

Fibre::Fibre() {
  if (__tsan_get_current_fiber != nullptr) thread_ = __tsan_get_current_fiber();
}

Fibre::Fibre(std::function<void()> body) : body_(std::move(body)), stack_bytes_(stack_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapping_ =
      mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(mapping_, page, PROT_NONE);
  stack_ = static_cast<char*>(mapping_) + page;
  context_ = context::make_fcontext(static_cast<char*>(mapping_) + page + stack_bytes, stack_bytes, Entry::run);
  if (__tsan_create_fiber != nullptr) thread_ = __tsan_create_fiber(0);
}

Fibre::~Fibre() {
  if (mapping_ == nullptr) return;
  if (__tsan_destroy_fiber != nullptr) __tsan_destroy_fiber(thread_);
  munmap(mapping_, static_cast<size_t>(sysconf(_SC_PAGESIZE)) + stack_bytes);
}

void Fibre::switch_to(Fibre& next) {
  Passage passage{this, &next};
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&fake_stack_, next.stack_, next.stack_bytes_);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(next.thread_, without_order);
  const context::transfer_t back = context::jump_fcontext(next.context_, &passage);
  arrived(back.fctx, static_cast<Passage*>(back.data)->from);
}

void Fibre::arrived(void* from_context, Fibre* from) {
  from->context_ = from_context;
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(fake_stack_, &from->stack_, &from->stack_bytes_);
  }
}

void Fibre::enter(void* from_context, Fibre* from, Fibre* self) {
  self->arrived(from_context, from);
  while (true) self->body_();
}

}  // namespace annulus::hosted
