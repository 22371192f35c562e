// Whether ThreadSanitizer watches, and what it has reported. In the double's own tests a report is an expectation.
#pragma once

#include <atomic>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HOSTED_CUDA_WATCHED 1
#endif
#endif

namespace annulus::hosted {

#ifdef HOSTED_CUDA_WATCHED
inline constexpr bool watched = true;
#else
inline constexpr bool watched = false;
#endif

int reported_races();  // so far

}  // namespace annulus::hosted
