#include "launcher/config_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "kernels/error.h"

namespace annulus {
namespace {

// The whole text as one number, or nothing. A leading plus is YAML's, not from_chars'.
template <class T>
std::optional<T> parse(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_finite(const YAML::Node& node) {
  if (!node.IsScalar() || node.Tag() == "!") return std::nullopt;
  const std::optional<double> value = parse<double>(node.Scalar());
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string integer_range(int64_t lowest, int64_t highest) {
  if (highest == std::numeric_limits<int64_t>::max()) return fmt::format("an integer of at least {}", lowest);
  return fmt::format("an integer from {} to {}", lowest, highest);
}

}  // namespace

bool ConfigValue::is_plain() const {
  return node_.IsScalar() && node_.Tag() != "!";
}  // "!": yaml-cpp's tag of quotes

bool ConfigValue::is_word(const char* word) const {
  return node_.IsScalar() && node_.Scalar() == word;
}

int64_t ConfigValue::integer(int64_t lowest, int64_t highest, const std::string& or_else) const {
  const std::optional<int64_t> value = is_plain() ? parse<int64_t>(node_.Scalar()) : std::nullopt;
  if (!value || *value < lowest || *value > highest) refuse(or_else + integer_range(lowest, highest));
  return *value;
}

int64_t ConfigValue::bytes() const {
  constexpr std::array<std::string_view, 5> units = {"", "KB", "MB", "GB", "TB"};  // each 1000 of the one before
  const std::string text = node_.IsScalar() ? node_.Scalar() : "";
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto* const unit = std::ranges::find(units, std::string_view(text).substr(digits));
  std::optional<int64_t> value = parse<int64_t>(std::string_view(text).substr(0, digits));
  for (const auto* step = units.begin(); value && unit != units.end() && step != unit; ++step) {
    if (__builtin_mul_overflow(*value, 1000, &*value)) value.reset();
  }
  if (!value || unit == units.end() || *value < 1) refuse("a number of bytes of at least 1, such as 5000000000 or 5GB");
  return *value;
}

uint64_t ConfigValue::seed() const {
  const std::optional<uint64_t> value = is_plain() ? parse<uint64_t>(node_.Scalar()) : std::nullopt;
  if (!value) refuse(fmt::format("an integer from 0 to {}", std::numeric_limits<uint64_t>::max()));
  return *value;
}

double ConfigValue::number_from(double lowest) const {
  const std::optional<double> value = parse_finite(node_);
  if (!value || *value < lowest) refuse(fmt::format("a number of at least {}", lowest));
  return *value;
}

double ConfigValue::number_above(double bound) const {
  const std::optional<double> value = parse_finite(node_);
  if (!value || *value <= bound) refuse(fmt::format("a number above {}", bound));
  return *value;
}

std::pair<double, double> ConfigValue::betas() const {
  const auto beta = [this](size_t i) {
    const std::optional<double> value = parse_finite(node_[i]);
    if (!value || *value < 0 || *value >= 1) refuse("a list of two numbers from 0 to below 1, such as [0.9, 0.95]");
    return *value;
  };
  if (!node_.IsSequence() || node_.size() != 2) refuse("a list of two numbers, such as [0.9, 0.95]");
  return {beta(0), beta(1)};
}

bool ConfigValue::boolean() const {
  if (is_plain() && is_word("true")) return true;
  if (is_plain() && is_word("false")) return false;
  refuse("true or false");
}

std::filesystem::path ConfigValue::path() const {
  if (!node_.IsScalar() || node_.Scalar().empty()) refuse("a path");
  return (base_ / node_.Scalar()).lexically_normal();
}

std::filesystem::path ConfigValue::path_from_working_directory() const {
  if (!node_.IsScalar() || node_.Scalar().empty()) refuse("a path");
  return std::filesystem::path(node_.Scalar()).lexically_normal();
}

std::string ConfigValue::shown() const {
  if (node_.IsNull()) return "null";
  if (node_.IsMap()) return "a section";
  if (!node_.IsSequence()) return is_plain() ? node_.Scalar() : '"' + node_.Scalar() + '"';
  std::string list;
  for (const YAML::Node& item : node_) list += (list.empty() ? "" : ", ") + (item.IsScalar() ? item.Scalar() : "...");
  return '[' + list + ']';
}

void ConfigValue::refuse(const std::string& expected) const {
  throw ConfigurationError(fmt::format("{}: {} is {}; expected {}", place_, key_, shown(), expected));
}

}  // namespace annulus
