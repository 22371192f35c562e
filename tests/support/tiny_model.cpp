#include "tests/support/tiny_model.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace annulus {
namespace {

class WeightMaker {
 public:
  explicit WeightMaker(uint64_t seed) : generator_(seed) {}

  void matrix(const std::string& name, int64_t outputs, int64_t inputs, double mean = 0) {
    std::normal_distribution<double> normal(mean, 0.5 / std::sqrt(static_cast<double>(inputs)));
    add(name, {outputs, inputs}, outputs * inputs, normal);
  }

  void norm(const std::string& name, int64_t width) {
    std::uniform_real_distribution<double> uniform(0.7, 1.3);
    add(name, {width}, width, uniform);
  }

  HostTensors take() { return std::move(tensors_); }

 private:
  template <class Distribution>
  void add(const std::string& name, std::vector<int64_t> shape, int64_t elements, Distribution& distribution) {
    HostTensor& tensor = tensors_[name];
    tensor.shape = std::move(shape);
    tensor.values.resize(static_cast<size_t>(elements));
    for (float& value : tensor.values) value = static_cast<float>(distribution(generator_));
  }

  std::mt19937_64 generator_;
  HostTensors tensors_;
};

void add_layer(WeightMaker& maker, const TinyModel& model, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t queries = model.heads * model.head_dim, keys = model.kv_heads * model.head_dim;
  maker.norm(prefix + "input_layernorm.weight", model.hidden);
  maker.matrix(prefix + "self_attn.q_proj.weight", queries, model.hidden);
  maker.matrix(prefix + "self_attn.k_proj.weight", keys, model.hidden);
  maker.matrix(prefix + "self_attn.v_proj.weight", keys, model.hidden);
  maker.matrix(prefix + "self_attn.o_proj.weight", model.hidden, queries);
  maker.norm(prefix + "self_attn.q_norm.weight", model.head_dim);
  maker.norm(prefix + "self_attn.k_norm.weight", model.head_dim);
  maker.norm(prefix + "post_attention_layernorm.weight", model.hidden);
  maker.matrix(prefix + "mlp.gate_proj.weight", model.intermediate, model.hidden);
  maker.matrix(prefix + "mlp.up_proj.weight", model.intermediate, model.hidden);
  maker.matrix(prefix + "mlp.down_proj.weight", model.hidden, model.intermediate);
}

nlohmann::ordered_json config(const TinyModel& model) {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"hidden_act", "silu"},
          {"initializer_range", 0.02},
          {"rms_norm_eps", 1e-6},
          {"max_position_embeddings", 40960},
          {"use_sliding_window", false},
          {"sliding_window", nullptr},
          {"torch_dtype", "float32"},
          {"num_hidden_layers", model.layers},
          {"hidden_size", model.hidden},
          {"num_attention_heads", model.heads},
          {"num_key_value_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"intermediate_size", model.intermediate},
          {"vocab_size", model.vocabulary},
          {"tie_word_embeddings", model.tied},
          {"rope_theta", 1000000.0}};
}

}  // namespace

HostTensors random_weights(const TinyModel& model, uint64_t seed) {
  constexpr double token_mean = 0.1;
  WeightMaker maker(seed);
  maker.matrix("model.embed_tokens.weight", model.vocabulary, model.hidden, token_mean);
  for (int64_t layer = 0; layer < model.layers; ++layer) add_layer(maker, model, layer);
  maker.norm("model.norm.weight", model.hidden);
  if (!model.tied) maker.matrix("lm_head.weight", model.vocabulary, model.hidden, token_mean);
  return maker.take();
}

void write_model(const std::filesystem::path& directory, const TinyModel& model, uint64_t seed) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "config.json") << config(model).dump(2) << '\n';
  write_tensors(directory / "model.safetensors", random_weights(model, seed));
}

std::vector<TinyDocument> random_documents(std::span<const int64_t> lengths, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocabulary - 1));
  std::bernoulli_distribution missing(0.1);
  std::vector<TinyDocument> documents;
  for (const int64_t length : lengths) {
    TinyDocument& document = documents.emplace_back();
    for (int64_t i = 0; i < length; ++i) {
      const bool prompt = i < length / 4;
      document.input_ids.push_back(token(generator));
      document.labels.push_back(missing(generator) || prompt ? -100 : document.input_ids.back());
    }
  }
  return documents;
}

void write_documents(const std::filesystem::path& path, std::span<const TinyDocument> documents) {
  std::ofstream file(path);
  for (const TinyDocument& document : documents) {
    nlohmann::ordered_json line = {{"input_ids", document.input_ids}};
    if (!document.labels.empty()) line["labels"] = document.labels;
    file << line.dump() << '\n';
  }
}

}  // namespace annulus
