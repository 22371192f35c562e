#include "runtime/files/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "runtime/files/file.h"

namespace annulus {

namespace {

// The library names its exception in brackets and quotes what it read last, which may be the whole file.
std::string reason_of(const nlohmann::json::exception& error) {
  constexpr size_t longest = 200;
  std::string reason = error.what();
  if (const size_t bracket = reason.find("] "); bracket != std::string::npos) reason.erase(0, bracket + 2);
  if (reason.size() > longest) reason = reason.substr(0, longest) + "...";
  return reason;
}

[[noreturn]] void refuse(std::string_view source, const std::string& reason) {
  throw DataError(fmt::format("{} is not valid JSON: {}", source, reason));
}

// The library takes a zero byte for the end of its input and would not look at what follows.
void refuse_zero(std::string_view text, std::string_view source) {
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    refuse(source, fmt::format("byte {} is zero", zero));
  }
}

// Deeper than any file of ours, and shallow enough that what the library does by recursion with a tree (write it, copy
// it) does not overflow the stack.
constexpr int deepest = 200;

template <class Json>
Json parse_tree(std::string_view text, std::string_view source) {
  refuse_zero(text, source);
  const auto refuse_deep = [&](int depth, typename Json::parse_event_t /*event*/, Json& /*value*/) {
    if (depth > deepest) {
      throw DataError(fmt::format("{} is nested more than {} levels deep; is it the right file?", source, deepest));
    }
    return true;
  };
  try {
    return Json::parse(text, refuse_deep);
  } catch (const nlohmann::json::exception& error) {
    refuse(source, reason_of(error));
  }
}

// Hands the library's events on.
class Events final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Events(JsonHandler& handler, std::string_view source) : handler_(handler), source_(source) {}

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(int64_t value) override {
    handler_.integer(value);
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (!std::in_range<int64_t>(value)) return other(std::to_string(value));
    handler_.integer(static_cast<int64_t>(value));
    return true;
  }
  bool number_float(double /*value*/, const std::string& text) override { return other(text); }
  bool string(std::string& value) override {
    handler_.string(value);
    return true;
  }
  bool binary(binary_t& /*value*/) override { throw InternalError("JSON text holds no binary values"); }
  bool start_object(size_t /*elements*/) override {
    handler_.begin_object();
    return true;
  }
  bool end_object() override {
    handler_.end_object();
    return true;
  }
  bool start_array(size_t /*elements*/) override {
    handler_.begin_array();
    return true;
  }
  bool end_array() override {
    handler_.end_array();
    return true;
  }
  bool key(std::string& name) override {
    handler_.key(name);
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/, const nlohmann::json::exception& error) override {
    refuse(source_, reason_of(error));
  }

 private:
  bool other(std::string_view text) {
    handler_.other(text);
    return true;
  }

  JsonHandler& handler_;
  std::string_view source_;
};

}  // namespace

void parse_json(std::string_view text, std::string_view source, JsonHandler& handler) {
  refuse_zero(text, source);
  Events events(handler, source);
  nlohmann::json::sax_parse(text, &events);
}

nlohmann::json read_json(const std::filesystem::path& path) {
  return parse_tree<nlohmann::json>(read_text(path), fmt::format("'{}'", path.string()));
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view source) {
  return parse_tree<nlohmann::ordered_json>(text, source);
}

std::string quote_json(std::string_view text) {
  return nlohmann::json(text).dump();
}

}  // namespace annulus
