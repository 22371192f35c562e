// The run configuration: a YAML file and `section.key=value` words from the command line, checked and as plain values.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "runtime/settings.h"

namespace annulus {

// A plan needs no data.train.
enum class RequiredKeys { all, without_data };

// Throws ConfigurationError for a file that cannot be read or is not YAML, for unknown, misplaced, repeated and missing
// keys, wrong types and impossible values, naming file and line, the key in full and what was expected. Overrides win
// over the file. Relative paths in the file are relative to its folder, others to the working directory.
Settings load_settings(const std::filesystem::path& config, std::span<const std::string> overrides,
                       RequiredKeys required = RequiredKeys::all);

}  // namespace annulus
