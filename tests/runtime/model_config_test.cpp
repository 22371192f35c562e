#include "runtime/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

using Json = nlohmann::json;

// The config.json of Qwen3-8B.
Json qwen3_8b() {
  return Json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36,
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936})");
}

// A small model with no more keys than it needs.
Json tiny() {
  return Json::parse(R"({"model_type": "qwen3", "vocab_size": 101, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32})");
}

ModelConfig read(const Json& json) {
  const TemporaryDirectory folder;
  folder.write("config.json", json.dump());
  return ModelConfig::read(folder.path());
}

// `base` with some keys added or replaced.
Json with(Json base, const std::string& changes) {
  base.update(Json::parse(changes));
  return base;
}

Json without(Json base, const std::string& key) {
  base.erase(key);
  return base;
}

void expect_refused(const Json& json, std::initializer_list<std::string_view> parts) {
  const std::string message = message_of<DataError>([&] { read(json); });
  expect_says(message, {"config.json"});
  expect_says(message, parts);
}

TEST(ModelConfig, ReadsQwen3AsPublished) {
  const ModelConfig model = read(qwen3_8b());
  EXPECT_EQ(model.vocabulary, 151936);
  EXPECT_EQ(model.hidden, 4096);
  EXPECT_EQ(model.intermediate, 12288);
  EXPECT_EQ(model.layers, 36);
  EXPECT_EQ(model.heads, 32);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(model.rms_norm_eps, 1e-6);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.initializer_range, 0.02);
  EXPECT_FALSE(model.tied);
  EXPECT_EQ(model.layer_windows, std::vector<int64_t>(36, 0));
}

// The published checkpoints: 8B takes 16,381,470,720 bytes in bfloat16, 0.6B has 751,632,384 elements with its tied
// head stored twice.
TEST(ModelConfig, CountsParametersAsTheCheckpointsHaveThem) {
  EXPECT_EQ(read(qwen3_8b()).parameters(), 16'381'470'720 / 2);
  const Json small = with(qwen3_8b(), R"({"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                                          "num_attention_heads": 16, "tie_word_embeddings": true})");
  EXPECT_EQ(read(small).parameters(), 751'632'384 - 151936 * 1024);
}

TEST(ModelConfig, TakesHeadDimAsGivenAndDoesNotDeriveIt) {
  EXPECT_EQ(read(tiny()).head_dim, 32);
}

TEST(ModelConfig, HasTheDefaultsOfTransformers) {
  const ModelConfig model =
      read(without(with(without(tiny(), "head_dim"), R"({"num_attention_heads": 32})"), "num_key_value_heads"));
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(model.kv_heads, 32);
  EXPECT_EQ(model.rms_norm_eps, 1e-6);
  EXPECT_EQ(model.rope_theta, 10000.0);
  EXPECT_EQ(model.initializer_range, 0.02);
  EXPECT_FALSE(model.tied);
  EXPECT_EQ(model.layer_windows, std::vector<int64_t>(4, 0));
  EXPECT_EQ(read(with(tiny(), R"({"num_key_value_heads": null})")).kv_heads, 4);
}

TEST(ModelConfig, IsQwen3ByArchitectureOrByType) {
  EXPECT_NO_THROW(read(with(without(tiny(), "model_type"), R"({"architectures": ["X", "Qwen3ForCausalLM"]})")));
  EXPECT_NO_THROW(read(with(tiny(), R"({"architectures": null})")));
  expect_refused(without(tiny(), "model_type"), {"model_type is missing", "qwen3"});
  expect_refused(with(tiny(), R"({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]})"),
                 {"model_type is \"qwen3_moe\"", "only Qwen3 is supported"});
}

TEST(ModelConfig, ReadsEverySpellingOfRopeTheta) {
  EXPECT_EQ(read(with(tiny(), R"({"rope_theta": 5e5})")).rope_theta, 5e5);
  EXPECT_EQ(read(with(tiny(), R"({"rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}})")).rope_theta, 5e6);
  EXPECT_EQ(read(with(tiny(), R"({"rope_parameters": {"rope_theta": 5e6}, "rope_theta": 5000000})")).rope_theta, 5e6);
  EXPECT_EQ(read(with(tiny(), R"({"rope_scaling": {"type": "default"}, "rope_theta": 7.5})")).rope_theta, 7.5);
  EXPECT_EQ(read(with(tiny(), R"({"rope_parameters": null, "rope_scaling": null})")).rope_theta, 10000.0);
  expect_refused(with(tiny(), R"({"rope_parameters": {"rope_theta": 2.0}, "rope_theta": 3.0})"),
                 {"rope_parameters.rope_theta is 2.0", "says 3 elsewhere"});
  expect_refused(with(tiny(), R"({"rope_theta": 0})"), {"rope_theta is 0", "a number above 0"});
  expect_refused(with(tiny(), R"({"rope_theta": "1e6"})"), {"rope_theta is \"1e6\""});
}

TEST(ModelConfig, RefusesScaledRotaryAngles) {
  expect_refused(with(tiny(), R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})"),
                 {"rope_scaling.", "factor"});
  expect_refused(with(tiny(), R"({"rope_parameters": {"rope_type": "yarn"}})"),
                 {"rope_parameters.rope_type is \"yarn\"", "only \"default\""});
  expect_refused(with(tiny(), R"({"rope_scaling": {"type": "linear"}})"), {"rope_scaling.type is \"linear\""});
  expect_refused(with(tiny(), R"({"rope_scaling": 4})"), {"rope_scaling is 4", "an object or null"});
}

TEST(ModelConfig, RefusesWhatWouldComputeSomethingElse) {
  expect_refused(with(tiny(), R"({"attention_bias": true})"), {"attention_bias is true", "not supported"});
  expect_refused(with(tiny(), R"({"attention_dropout": 0.1})"), {"attention_dropout is 0.1", "only 0"});
  expect_refused(with(tiny(), R"({"hidden_act": "gelu"})"), {"hidden_act is \"gelu\"", "only \"silu\""});
}

TEST(ModelConfig, IgnoresTheStoredDtypeInBothSpellings) {
  EXPECT_NO_THROW(read(with(tiny(), R"({"torch_dtype": "float16"})")));
  EXPECT_NO_THROW(read(with(tiny(), R"({"dtype": "bfloat16"})")));
}

TEST(ModelConfig, SlidesFromMaxWindowLayersOn) {
  const Json window = with(tiny(), R"({"use_sliding_window": true, "sliding_window": 7})");
  EXPECT_EQ(read(with(window, R"({"max_window_layers": 3})")).layer_windows, (std::vector<int64_t>{0, 0, 0, 7}));
  EXPECT_EQ(read(with(window, R"({"max_window_layers": 0})")).layer_windows, (std::vector<int64_t>{7, 7, 7, 7}));
  EXPECT_EQ(read(with(window, R"({"max_window_layers": 4})")).layer_windows, (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(read(window).layer_windows, (std::vector<int64_t>{0, 0, 0, 0}));  // 28 by default
  EXPECT_EQ(read(with(window, R"({"max_window_layers": 3, "sliding_window": null})")).layer_windows,
            (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(read(with(window, R"({"max_window_layers": 3, "use_sliding_window": false})")).layer_windows,
            (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(read(without(with(window, R"({"max_window_layers": 3})"), "sliding_window")).layer_windows,
            (std::vector<int64_t>{0, 0, 0, 4096}));
  expect_refused(with(window, R"({"sliding_window": 0})"), {"sliding_window is 0", "from 1"});
}

TEST(ModelConfig, FollowsLayerTypesWhereTheyAreGiven) {
  const Json window = with(tiny(), R"({"use_sliding_window": true, "sliding_window": 7, "max_window_layers": 0,
    "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]})");
  EXPECT_EQ(read(window).layer_windows, (std::vector<int64_t>{7, 0, 0, 7}));
  expect_refused(with(window, R"({"use_sliding_window": false})"), {"layer_types", "no window", "use_sliding_window"});
  expect_refused(with(window, R"({"sliding_window": null})"), {"layer_types", "no window"});
  expect_refused(with(window, R"({"layer_types": ["full_attention"]})"),
                 {"layer_types is an array", "num_hidden_layers = 4"});
  expect_refused(with(window, R"({"layer_types": ["full_attention", "full_attention", "linear_attention", 1]})"),
                 {"layer_types", "layer 2 is \"linear_attention\""});
}

TEST(ModelConfig, ReplacesEveryWindowOrLeavesThem) {
  const ModelConfig model =
      read(with(tiny(), R"({"use_sliding_window": true, "sliding_window": 7, "max_window_layers": 2})"));
  EXPECT_EQ(model.with_window(std::nullopt).layer_windows, (std::vector<int64_t>{0, 0, 7, 7}));
  EXPECT_EQ(model.with_window(0).layer_windows, (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(model.with_window(5).layer_windows, (std::vector<int64_t>{5, 5, 5, 5}));
}

TEST(ModelConfig, NamesEachMissingKeyOfTheShape) {
  for (const char* const key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    expect_refused(without(tiny(), key), {std::string(key) + " is missing", "give an integer from 1"});
  }
}

TEST(ModelConfig, RefusesMistypedAndImpossibleSizes) {
  for (const char* const value :
       {"0", "-1", "64.0", "\"64\"", "null", "true", "[64]", "1048577", "18446744073709551615"}) {
    expect_refused(with(tiny(), std::string(R"({"hidden_size": )") + value + "}"),
                   {"hidden_size is", "give an integer from 1 to 1048576"});
  }
  EXPECT_EQ(read(with(tiny(), R"({"vocab_size": 2147483647})")).vocabulary, 2147483647);
  expect_refused(with(tiny(), R"({"vocab_size": 2147483648})"), {"vocab_size is 2147483648"});
  expect_refused(with(tiny(), R"({"head_dim": 33})"), {"head_dim is 33", "even"});
  expect_refused(with(tiny(), R"({"head_dim": 1048576})"), {"head_dim is 1048576", "4 heads"});
  expect_refused(with(tiny(), R"({"num_key_value_heads": 3})"), {"num_key_value_heads is 3", "not a multiple of 3"});
  expect_refused(without(tiny(), "num_key_value_heads"), {"num_key_value_heads is missing", "32, its default"});
  expect_refused(with(tiny(), R"({"tie_word_embeddings": 1})"), {"tie_word_embeddings is 1", "true or false"});
  expect_refused(with(tiny(), R"({"rms_norm_eps": -1e-6})"), {"rms_norm_eps is -1e-06"});
  expect_refused(with(tiny(), R"({"rms_norm_eps": 1e300})"), {"rms_norm_eps is 1e+300", "at most 1"});
  expect_refused(with(tiny(), R"({"initializer_range": 50})"), {"initializer_range is 50", "at most 1"});
  expect_refused(with(tiny(), R"({"rope_theta": 1e300})"), {"rope_theta is 1e+300", "at most 1e+12"});
}

TEST(ModelConfig, CountsTheLargestShapeItAcceptsWithoutOverflow) {
  const ModelConfig model = read(with(tiny(), R"({"vocab_size": 2147483647, "hidden_size": 1048576,
    "intermediate_size": 1048576, "num_hidden_layers": 1048576, "num_attention_heads": 8192, "num_key_value_heads": 8192,
    "head_dim": 128})"));
  // 2^20 layers of 7·2^40 elements in matrices, 2^21 + 2^8 in norms; two embeddings of (2^31 − 1)·2^20; the last norm.
  const int64_t million = int64_t{1} << 20;
  EXPECT_EQ(model.parameters(),
            7 * (int64_t{1} << 60) + million * ((1 << 21) + (1 << 8)) + 2 * int64_t{2147483647} * million + million);
}

// A tree is written by recursion, which would overflow the stack when the model is saved.
TEST(ModelConfig, RefusesFilesThatAreNestedWithoutEnd) {
  const auto nested = [](size_t depth) {
    return with(tiny(), R"({"ignored": )" + std::string(depth, '[') + std::string(depth, ']') + "}");
  };
  EXPECT_EQ(read(nested(100)).hidden, 64);
  const TemporaryDirectory folder;
  folder.write("config.json", R"({"x": )" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}");
  expect_says(message_of<DataError>([&] { ModelConfig::read(folder.path()); }),
              {"config.json'", "more than 200 levels"});
}

TEST(ModelConfig, RefusesFilesThatAreNoConfiguration) {
  const TemporaryDirectory folder;
  const auto message = [&](const std::string& text) {
    folder.write("config.json", text);
    return message_of<DataError>([&] { ModelConfig::read(folder.path()); });
  };
  expect_says(message_of<DataError>([&] { ModelConfig::read(folder / "absent"); }),
              {"absent/config.json", "No such file"});
  expect_says(message(""), {"config.json", "not valid JSON"});
  expect_says(message("{\"vocab_size\": 1,}"), {"config.json", "not valid JSON", "column"});
  expect_says(message("{\"vocab_size\": 1e400}"), {"config.json", "not valid JSON"});
  expect_says(message("[]"), {"config.json", "an array, not an object"});
  expect_says(message(R"({"model_type": )" + std::string(100, '[') + std::string(100, ']') + "}"),
              {"config.json", "model_type is an array"});
}

}  // namespace
}  // namespace annulus
