#include "launcher/config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/error.h"
#include "launcher/config_keys.h"
#include "launcher/config_value.h"

namespace annulus {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& message) {
  throw ConfigurationError(place + ": " + message);
}

std::string place_in(const std::string& file, const YAML::Node& node) {
  return fmt::format("{}:{}", file, node.Mark().line + 1);
}

// Sets the keys of one source, the file or the command line; a source may name a key once.
class Source {
 public:
  Source(Settings& settings, std::filesystem::path base) : settings_(settings), base_(std::move(base)) {}

  void set(const std::string& name, const std::string& place, const YAML::Node& node) {
    const ConfigKey* key = find_config_key(name);
    if (key == nullptr) refuse_unknown(name, place, node);
    remember(name, place);
    key->set(settings_, ConfigValue(name, place, node, base_));
  }

  // YAML allows a key of a map once, yaml-cpp lets repetitions pass.
  void remember(const std::string& name, const std::string& place) {
    if (!given_.insert(name).second) refuse(place, name + " is given twice; keep one");
  }

  [[nodiscard]] const std::set<std::string>& given() const { return given_; }

 private:
  [[noreturn]] static void refuse_unknown(const std::string& name, const std::string& place, const YAML::Node& node) {
    if (is_config_section(name)) refuse(place, fmt::format("{} is a section; expected keys below it", name));
    const bool section = node.IsMap() && name.find('.') == std::string::npos;
    if (section) refuse(place, fmt::format("unknown section {}; nearest: {}", name, nearest_config_section(name)));
    refuse(place, fmt::format("unknown key {}; nearest: {}", name, nearest_config_key(name)));
  }

  Settings& settings_;
  std::filesystem::path base_;
  std::set<std::string> given_;
};

std::string read_config(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) refuse(path.string(), "cannot be read: " + error.message());
  if (!std::filesystem::exists(status)) refuse(path.string(), "no such configuration file");
  if (std::filesystem::is_directory(status)) refuse(path.string(), "a folder; expected a configuration file (YAML)");
  // Every rank reads it for itself, so what can be read once alone will not do.
  if (!std::filesystem::is_regular_file(status)) {
    refuse(path.string(), "not a regular file; write the configuration to one");
  }
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) refuse(path.string(), "the configuration file cannot be read; check its permissions");
  return text.str();
}

// Where documents begin, without building them.
class DocumentStarts final : public YAML::EventHandler {
 public:
  [[nodiscard]] const YAML::Mark& last() const { return last_; }

  void OnDocumentStart(const YAML::Mark& mark) override { last_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark last_;
};

// The only document of `text`, a null node where there is none; throws YAML::Exception. YAML::Load would leave out what
// follows the first document, and YAML::LoadAll never comes back from a comma outside of brackets, which yaml-cpp takes
// for an empty document and does not move past.
YAML::Node parse_yaml(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  parser.HandleNextDocument(starts);
  if (!parser) return YAML::Load(text);
  parser.HandleNextDocument(starts);
  throw YAML::Exception(starts.last(), "a second document begins, or a comma stands outside of brackets");
}

YAML::Node parse_config(const std::string& file, const std::string& text) {
  try {
    return parse_yaml(text);
  } catch (const YAML::Exception& error) {
    refuse(fmt::format("{}:{}", file, error.mark.line + 1), "not YAML: " + error.msg);
  }
}

std::string name_of_key(const std::string& file, const YAML::Node& key) {
  if (!key.IsScalar()) refuse(place_in(file, key), "expected the name of a key");
  return key.Scalar();
}

void set_section(Source& source, const std::string& file, const std::string& section, const YAML::Node& keys) {
  for (const auto& entry : keys) {
    source.set(section + "." + name_of_key(file, entry.first), place_in(file, entry.first), entry.second);
  }
}

void set_from_file(Source& source, const std::string& file, const YAML::Node& root) {
  if (root.IsNull()) return;
  if (!root.IsMap()) refuse(file, "expected sections with keys, such as `model:` with `path: DIR` below it");
  for (const auto& entry : root) {
    const std::string name = name_of_key(file, entry.first);
    const bool section = is_config_section(name) && (entry.second.IsMap() || entry.second.IsNull());
    if (section) {
      source.remember(name, place_in(file, entry.first));
      set_section(source, file, name, entry.second);
    } else if (name.find('.') != std::string::npos) {
      refuse(place_in(file, entry.first),
             name + ": dotted names are for the command line; write a section and its keys");
    } else {
      source.set(name, place_in(file, entry.first), entry.second);
    }
  }
}

// A list is YAML; anything else is taken letter by letter, so that paths need no quoting beyond the shell's.
YAML::Node parse_override(const std::string& word, const std::string& text) {
  if (text == "null") return YAML::Node(YAML::NodeType::Null);
  if (!text.starts_with('[')) return YAML::Node(text);
  try {
    return parse_yaml(text);
  } catch (const YAML::Exception& error) {
    refuse("command line", fmt::format("{}: not a list: {}", word, error.msg));
  }
}

void set_from_command_line(Source& source, std::span<const std::string> overrides) {
  for (const std::string& word : overrides) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) refuse("command line", word + ": expected section.key=value");
    source.set(word.substr(0, equals), "command line", parse_override(word, word.substr(equals + 1)));
  }
}

void require_required(const std::string& file, const Source& in_file, const Source& in_words, RequiredKeys required) {
  std::string missing;
  for (const ConfigKey& key : config_keys()) {
    const std::string name(key.name);
    if (!key.required() || in_file.given().contains(name) || in_words.given().contains(name)) continue;
    if (name == "data.train" && required == RequiredKeys::without_data) continue;
    missing += (missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty()) refuse(file, "missing " + missing);
}

void check_together(const std::string& file, const OptimizerSettings& optimizer) {
  if (optimizer.min_learning_rate <= optimizer.learning_rate) return;
  refuse(file, fmt::format("optimizer.min_learning_rate is {}; expected at most optimizer.learning_rate, {}",
                           optimizer.min_learning_rate, optimizer.learning_rate));
}

}  // namespace

Settings load_settings(const std::filesystem::path& config, std::span<const std::string> overrides,
                       RequiredKeys required) {
  const std::string file = config.string();
  Settings settings;
  settings.output.directory = "runs" / config.stem();
  Source in_file(settings, config.parent_path());
  Source in_words(settings, "");
  set_from_file(in_file, file, parse_config(file, read_config(config)));
  set_from_command_line(in_words, overrides);
  require_required(file, in_file, in_words, required);
  check_together(file, settings.optimizer);
  return settings;
}

}  // namespace annulus
