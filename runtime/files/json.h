// JSON as a stream of events: a large text is never held as a tree, a repeated key is seen, and depth costs no stack.
// Small files are read as a tree. For the inside of this floor only: its public headers do not show the library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace annulus {

// Told what a JSON text holds, in its order. Syntax is the parser's affair: every begin has its end, a key comes before
// each value of an object. A handler may throw to stop.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual void begin_object() = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  virtual void key(const std::string& name) = 0;
  virtual void integer(int64_t value) = 0;
  virtual void string(const std::string& value) = 0;
  virtual void other(std::string_view text) = 0;  // null, true, false, or a number that is not an integer of 64 bits
};

// Throws DataError "SOURCE is not valid JSON: ..." where the text is not one JSON value in UTF-8.
void parse_json(std::string_view text, std::string_view source, JsonHandler& handler);

// The tree of a small file (see read_text); of a repeated key the last counts. Throws DataError as above, and where it
// is nested more than 200 levels deep.
nlohmann::json read_json(const std::filesystem::path& path);

// The same of a text, with the keys of every object in their order.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view source);

// The text between quotes, escaped as JSON wants it.
std::string quote_json(std::string_view text);

}  // namespace annulus
