#include "runtime/files/model_companions.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "runtime/files/json.h"

namespace annulus {

namespace {

namespace fs = std::filesystem;

constexpr std::array names = {"config.json",
                              "generation_config.json",
                              "tokenizer.json",
                              "tokenizer.model",
                              "tokenizer_config.json",
                              "special_tokens_map.json",
                              "added_tokens.json",
                              "vocab.json",
                              "merges.txt",
                              "chat_template.jinja"};

}  // namespace

std::string with_dtype(const fs::path& file, std::string_view dtype) {
  const std::string config = read_text(file);
  nlohmann::ordered_json json = parse_ordered_json(config, fmt::format("'{}'", file.string()));
  bool changed = false;
  for (const char* const key : {"torch_dtype", "dtype"}) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) continue;
    if (found->is_string() && found->get_ref<const std::string&>() == dtype) continue;
    *found = dtype;
    changed = true;
  }
  return changed ? json.dump(2) + '\n' : config;
}

std::deque<OutputFile> copy_companions(const fs::path& source, const fs::path& directory, std::string_view dtype) {
  std::deque<OutputFile> files;
  for (const std::string_view name : names) {
    std::error_code unknown;  // what cannot be looked at says so when it is opened
    if (fs::status(source / name, unknown).type() == fs::file_type::not_found) continue;
    const bool is_config = name == "config.json";
    const std::string text = is_config ? with_dtype(source / name, dtype) : read_text(source / name);
    OutputFile& file = files.emplace_back(directory / name);
    file.write(std::as_bytes(std::span(text)));
    file.finish();
  }
  return files;
}

}  // namespace annulus
