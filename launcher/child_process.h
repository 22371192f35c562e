// Another run of this program, and waiting for it.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace annulus {

// Starts this executable with `words` behind its name, its output and errors in `log`, and returns its exit code once
// it has ended: 128 + n where signal n ended it. It is ended with this process. Throws EnvironmentError where it cannot
// be started or `log` cannot be written.
int run_this_program(std::span<const std::string> words, const std::filesystem::path& log);

}  // namespace annulus
