#include "runtime/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/error.h"
#include "kernels/narrow.h"
#include "runtime/files/json.h"

namespace annulus {

namespace {

using Json = nlohmann::json;

// Far above any model, and small enough that parameters() fits 64 bits whatever the shape.
constexpr int64_t largest_dimension = int64_t{1} << 20;
constexpr int64_t largest_int32 = 2147483647;  // tokens, rows and windows are of this type on a device

// A value as an error shows it. Arrays and objects are only named: they may be long and deep.
std::string show(const Json& value) {
  constexpr size_t longest = 80;
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump();
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

bool is(const Json& value, std::string_view text) {
  const auto* const string = value.get_ptr<const std::string*>();
  return string != nullptr && *string == text;
}

constexpr double largest_rope_theta = 1e12;  // far beyond the 1e6 to 1e7 of models for a million tokens

// An object of the file whose keys are asked for by name. Every refusal names the file, the key, its value and what
// would do.
class Section {
 public:
  Section(const std::filesystem::path& file, const Json& object, std::string prefix)
      : file_(file), object_(object), prefix_(std::move(prefix)) {}

  [[noreturn]] void refuse(std::string_view key, const std::string& advice) const {
    const Json* const value = find(key);
    throw DataError(fmt::format("'{}': {}{} {}: {}", file_.string(), prefix_, key,
                                value == nullptr ? "is missing" : "is " + show(*value), advice));
  }

  // nullptr where the key is absent.
  [[nodiscard]] const Json* find(std::string_view key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  // nullptr where the key is absent or null.
  [[nodiscard]] const Json* find_value(std::string_view key) const {
    const Json* const value = find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  [[nodiscard]] int64_t integer(std::string_view key, int64_t smallest, int64_t largest,
                                std::optional<int64_t> absent = {}) const {
    const Json* const value = find(key);
    if (value == nullptr && absent) return *absent;
    // Asked for as unsigned where it is, so that a number above 2^63 does not wrap.
    const bool fits = value != nullptr && (value->is_number_unsigned() ? std::in_range<int64_t>(value->get<uint64_t>())
                                                                       : value->is_number_integer());
    if (!fits || value->get<int64_t>() < smallest || value->get<int64_t>() > largest) {
      refuse(key, fmt::format("give an integer from {} to {}", smallest, largest));
    }
    return value->get<int64_t>();
  }

  [[nodiscard]] double positive(std::string_view key, double absent, double most) const {
    const Json* const value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number() || !(value->get<double>() > 0 && value->get<double>() <= most)) {
      refuse(key, fmt::format("give a number above 0, at most {:g}", most));
    }
    return value->get<double>();
  }

  [[nodiscard]] bool boolean(std::string_view key, bool absent) const {
    const Json* const value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) refuse(key, "give true or false");
    return value->get<bool>();
  }

  // The object under `key`, whose own keys are named KEY.NAME; nullopt where it is absent or null.
  [[nodiscard]] std::optional<Section> section(std::string_view key) const {
    const Json* const value = find_value(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) refuse(key, "give an object or null");
    return Section(file_, *value, fmt::format("{}{}.", prefix_, key));
  }

  [[nodiscard]] const Json& json() const { return object_; }

 private:
  const std::filesystem::path& file_;
  const Json& object_;
  std::string prefix_;
};

void check_architecture(const Section& config) {
  const Json* const architectures = config.find("architectures");
  const Json* const type = config.find("model_type");
  const bool named = architectures != nullptr && architectures->is_array() &&
                     std::ranges::any_of(*architectures, [](const Json& name) { return is(name, "Qwen3ForCausalLM"); });
  if (named || (type != nullptr && is(*type, "qwen3"))) return;
  config.refuse("model_type", "only Qwen3 is supported; give \"qwen3\", or \"architectures\": [\"Qwen3ForCausalLM\"]");
}

// What would change the computation and is not part of it.
void check_computation(const Section& config) {
  const Json* const activation = config.find("hidden_act");
  if (activation != nullptr && !is(*activation, "silu")) config.refuse("hidden_act", "only \"silu\" is supported");
  if (config.boolean("attention_bias", false)) {
    config.refuse("attention_bias", "biases in attention are not supported, only false is");
  }
  const Json* const dropout = config.find("attention_dropout");
  if (dropout != nullptr && !(dropout->is_number() && dropout->get<double>() == 0)) {
    config.refuse("attention_dropout", "dropout is not supported, only 0 is");
  }
}

// The theta of rope_parameters (or rope_scaling, its older name), which may hold the plain rotation only.
std::optional<double> theta_of(const Section& rope) {
  for (const auto& [key, value] : rope.json().items()) {
    if (key == "rope_type" || key == "type") {
      if (!is(value, "default")) rope.refuse(key, "scaled rotary angles are not supported, only \"default\" is");
    } else if (key != "rope_theta") {
      rope.refuse(key, "only rope_theta and a rope_type of \"default\" are supported here");
    }
  }
  if (rope.find("rope_theta") == nullptr) return std::nullopt;
  return rope.positive("rope_theta", 0, largest_rope_theta);
}

double read_rope_theta(const Section& config, double absent) {
  std::optional<double> theta;
  if (config.find("rope_theta") != nullptr) theta = config.positive("rope_theta", absent, largest_rope_theta);
  for (const char* const key : {"rope_parameters", "rope_scaling"}) {
    const std::optional<Section> rope = config.section(key);
    const std::optional<double> inner = rope ? theta_of(*rope) : std::nullopt;
    if (inner && theta && *inner != *theta) {
      rope->refuse("rope_theta", fmt::format("the file says {} elsewhere; give one of them", *theta));
    }
    if (inner) theta = inner;
  }
  return theta.value_or(absent);
}

// Whether each layer slides, as transformers' Qwen3Config decides it: layer_types, or else all from max_window_layers
// on.
std::vector<bool> read_sliding_layers(const Section& config, int64_t layers, bool use_window) {
  std::vector<bool> slides(narrow<size_t>(layers), false);
  const Json* const types = config.find_value("layer_types");
  if (types == nullptr) {
    const int64_t first = std::min(config.integer("max_window_layers", 0, largest_int32, 28), layers);
    if (use_window) std::fill(slides.begin() + first, slides.end(), true);
    return slides;
  }
  if (!types->is_array() || types->size() != slides.size()) {
    config.refuse("layer_types", fmt::format("give an array of num_hidden_layers = {} types", layers));
  }
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    const Json& type = (*types)[layer];
    slides[layer] = is(type, "sliding_attention");
    if (!slides[layer] && !is(type, "full_attention")) {
      config.refuse("layer_types", fmt::format("layer {} is {}; only \"full_attention\" and \"sliding_attention\" are "
                                               "supported",
                                               layer, show(type)));
    }
  }
  return slides;
}

std::vector<int64_t> read_layer_windows(const Section& config, int64_t layers) {
  // transformers forgets sliding_window unless use_sliding_window is set; null is no window either way.
  const bool null_window = config.find("sliding_window") != nullptr && config.find_value("sliding_window") == nullptr;
  const bool use_window = config.boolean("use_sliding_window", false) && !null_window;
  const int64_t window = use_window ? config.integer("sliding_window", 1, largest_int32, 4096) : 0;
  const std::vector<bool> slides = read_sliding_layers(config, layers, use_window);
  std::vector<int64_t> windows(slides.size());
  std::ranges::transform(slides, windows.begin(), [&](bool slide) { return slide ? window : 0; });
  if (!use_window && std::ranges::find(slides, true) != slides.end()) {
    config.refuse(
        "layer_types",
        "a layer is \"sliding_attention\" but there is no window; set use_sliding_window and sliding_window, or "
        "make it \"full_attention\"");
  }
  return windows;
}

// num_key_value_heads: null is as many as queries have, absent is 32, both as in transformers.
int64_t read_kv_heads(const Section& config, int64_t heads) {
  const bool null =
      config.find("num_key_value_heads") != nullptr && config.find_value("num_key_value_heads") == nullptr;
  const int64_t kv_heads = null ? heads : config.integer("num_key_value_heads", 1, largest_dimension, 32);
  if (heads % kv_heads != 0) {
    config.refuse("num_key_value_heads",
                  fmt::format("num_attention_heads = {} is not a multiple of {}{}", heads, kv_heads,
                              config.find("num_key_value_heads") == nullptr ? ", its default" : ""));
  }
  return kv_heads;
}

}  // namespace

ModelConfig ModelConfig::read(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "config.json";
  const Json json = read_json(file);
  if (!json.is_object()) throw DataError(fmt::format("'{}' is {}, not an object", file.string(), show(json)));
  const Section config(file, json, "");
  check_architecture(config);
  check_computation(config);

  // Defaults are those of transformers' Qwen3Config, where leaving a key out cannot be a mistake in the shape.
  ModelConfig model;
  model.vocabulary = config.integer("vocab_size", 1, largest_int32);
  model.hidden = config.integer("hidden_size", 1, largest_dimension);
  model.intermediate = config.integer("intermediate_size", 1, largest_dimension);
  model.layers = config.integer("num_hidden_layers", 1, largest_dimension);
  model.heads = config.integer("num_attention_heads", 1, largest_dimension);
  model.kv_heads = read_kv_heads(config, model.heads);
  model.head_dim = config.integer("head_dim", 1, largest_dimension, 128);
  if (model.head_dim % 2 != 0) config.refuse("head_dim", "rotary angles turn pairs, so give an even number");
  if (model.heads * model.head_dim > largest_dimension) {
    config.refuse("head_dim", fmt::format("{} heads of it are more than {}; give fewer or smaller heads", model.heads,
                                          largest_dimension));
  }
  model.rms_norm_eps = config.positive("rms_norm_eps", model.rms_norm_eps, 1);
  model.rope_theta = read_rope_theta(config, model.rope_theta);
  model.initializer_range = config.positive("initializer_range", model.initializer_range, 1);
  model.tied = config.boolean("tie_word_embeddings", model.tied);
  model.layer_windows = read_layer_windows(config, model.layers);
  return model;
}

ModelConfig ModelConfig::with_window(std::optional<int64_t> window) const {
  ModelConfig model = *this;
  if (window) {
    require(*window >= 0, "a window has no negative size");
    std::ranges::fill(model.layer_windows, *window);
  }
  return model;
}

int64_t ModelConfig::parameters() const {
  const int64_t attention = 2 * hidden * (heads + kv_heads) * head_dim + 2 * head_dim;  // q, o; k, v; their norms
  const int64_t mlp = 3 * hidden * intermediate;                                        // gate, up, down
  const int64_t embeddings = (tied ? 1 : 2) * vocabulary * hidden;
  return embeddings + layers * (attention + mlp + 2 * hidden) + hidden;
}

}  // namespace annulus
