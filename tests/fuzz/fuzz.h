// What every fuzz target shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/error.h"

// libFuzzer calls this with every input. A target returns 0, and −1 for an input not worth keeping.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // NOLINT(readability-identifier-naming)

namespace annulus {

// `read` may end normally or refuse its input by an error of `code`. Anything else thrown ends the process: a finding.
template <class Read>
void read_or_refuse(ExitCode code, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.code() != code || std::string_view(error.what()).empty()) throw;
  }
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Takes the first `size` bytes off `bytes`, or all where there are fewer.
inline std::string_view take(std::string_view& bytes, size_t size) {
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(taken.size());
  return taken;
}

}  // namespace annulus
