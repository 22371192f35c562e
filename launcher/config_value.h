// One value of the run configuration with where it stands, read as the type its key wants. Every refusal is a
// ConfigurationError that names place, key, value and what was expected.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

namespace annulus {

class ConfigValue {
 public:
  // `place` is "FILE:LINE" or "command line"; relative paths are relative to `base`.
  ConfigValue(std::string key, std::string place, YAML::Node node, std::filesystem::path base)
      : key_(std::move(key)), place_(std::move(place)), node_(std::move(node)), base_(std::move(base)) {}

  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] const std::string& place() const { return place_; }

  [[nodiscard]] bool is_null() const { return node_.IsNull(); }
  [[nodiscard]] bool is_word(const char* word) const;  // this scalar, quoted or not

  [[nodiscard]] int64_t integer(int64_t lowest, int64_t highest = std::numeric_limits<int64_t>::max(),
                                const std::string& or_else = "") const;  // or_else: "auto or ", for the message
  [[nodiscard]] int64_t bytes() const;                                   // 1 or more; 5GB is 5·10^9
  [[nodiscard]] uint64_t seed() const;                                   // any unsigned 64-bit integer
  [[nodiscard]] double number_from(double lowest) const;                 // finite, lowest or more
  [[nodiscard]] double number_above(double bound) const;                 // finite, more than bound
  [[nodiscard]] std::pair<double, double> betas() const;                 // [a, b], each in [0, 1)
  [[nodiscard]] bool boolean() const;                                    // true | false
  [[nodiscard]] std::filesystem::path path() const;
  [[nodiscard]] std::filesystem::path path_from_working_directory() const;

  template <class Enum>
  [[nodiscard]] Enum choice(std::initializer_list<std::pair<const char*, Enum>> choices) const {
    std::string expected;
    for (const auto& [word, value] : choices) {
      if (is_word(word)) return value;
      expected += (expected.empty() ? "" : " or ") + std::string(word);
    }
    refuse(expected);
  }

  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  [[nodiscard]] bool is_plain() const;      // a scalar without quotes: what may be a number or a boolean
  [[nodiscard]] std::string shown() const;  // the value in a message

  std::string key_;
  std::string place_;
  YAML::Node node_;
  std::filesystem::path base_;
};

}  // namespace annulus
