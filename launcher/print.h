// What a command was asked for, on standard output.
#pragma once

#include <cstdio>
#include <string>

#include "kernels/error.h"

namespace annulus {

inline void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
  throw EnvironmentError("standard output cannot be written; is the disk full?");
}

}  // namespace annulus
