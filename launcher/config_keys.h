// Every key of the run configuration, once: parsing, help and the search for the nearest key all use this table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/settings.h"

namespace annulus {

class ConfigValue;

struct ConfigKey {
  std::string_view name;      // section.key
  std::string_view fallback;  // its default as one would write it; empty: the key is required
  std::string_view meaning;   // one line for the help
  void (*set)(Settings& settings, const ConfigValue& value);

  [[nodiscard]] std::string_view section() const { return name.substr(0, name.find('.')); }
  [[nodiscard]] bool required() const { return fallback.empty(); }
};

std::span<const ConfigKey> config_keys();

// Null where there is none of this name.
const ConfigKey* find_config_key(std::string_view name);

// Also true for sections that have no keys.
bool is_config_section(std::string_view name);

// The known key, or section, that `name` most likely meant.
std::string_view nearest_config_key(std::string_view name);
std::string_view nearest_config_section(std::string_view name);

// One line a key with its default: the end of `annulus train --help`.
std::string config_keys_help();

}  // namespace annulus
