#include "runtime/model/units.h"

#include <string>

namespace annulus {
namespace {

// In the order of computation, which is also the order in the flat buffer.
enum LayerParameter : size_t { input_norm, query, key, value, output, query_norm, key_norm, mlp_norm, gate, up, down };

ParameterUnit layer(const ModelConfig& m, int64_t index) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const int64_t query_width = m.heads * m.head_dim, key_width = m.kv_heads * m.head_dim;
  ParameterUnit unit;
  const auto norm = [&](const char* name, int64_t width) {
    unit.add({.name = prefix + name + ".weight", .shape = {width}, .decayed = false});
  };
  const auto matrix = [&](const char* name, int64_t outputs, int64_t inputs, bool adjacent = false) {
    unit.add({.name = prefix + name + ".weight", .shape = {outputs, inputs}, .adjacent = adjacent});
  };
  norm("input_layernorm", m.hidden);
  matrix("self_attn.q_proj", query_width, m.hidden);
  matrix("self_attn.k_proj", key_width, m.hidden);
  matrix("self_attn.v_proj", key_width, m.hidden);
  matrix("self_attn.o_proj", m.hidden, query_width);
  norm("self_attn.q_norm", m.head_dim);
  norm("self_attn.k_norm", m.head_dim);
  norm("post_attention_layernorm", m.hidden);
  matrix("mlp.gate_proj", m.intermediate, m.hidden);
  matrix("mlp.up_proj", m.intermediate, m.hidden, /*adjacent=*/true);
  matrix("mlp.down_proj", m.hidden, m.intermediate);
  return unit;
}

}  // namespace

std::vector<ParameterUnit> qwen3_units(const ModelConfig& model) {
  std::vector<ParameterUnit> units(1);
  units[0].add({.name = "model.embed_tokens.weight", .shape = {model.vocabulary, model.hidden}});
  for (int64_t index = 0; index < model.layers; ++index) units.push_back(layer(model, index));
  ParameterUnit head;
  head.add({.name = "model.norm.weight", .shape = {model.hidden}, .decayed = false});
  if (!model.tied) head.add({.name = "lm_head.weight", .shape = {model.vocabulary, model.hidden}});
  units.push_back(std::move(head));

  int64_t index = 0;
  for (ParameterUnit& unit : units) index = unit.number_from(index);
  return units;
}

LayerParameters::LayerParameters(const ParameterUnit& unit, const View& flat)
    : input_norm(unit.view(flat, LayerParameter::input_norm)),
      query(unit.view(flat, LayerParameter::query)),
      key(unit.view(flat, LayerParameter::key)),
      value(unit.view(flat, LayerParameter::value)),
      output(unit.view(flat, LayerParameter::output)),
      query_norm(unit.view(flat, LayerParameter::query_norm)),
      key_norm(unit.view(flat, LayerParameter::key_norm)),
      mlp_norm(unit.view(flat, LayerParameter::mlp_norm)),
      gate_up(unit.joined_view(flat, LayerParameter::gate, LayerParameter::up)),
      down(unit.view(flat, LayerParameter::down)) {}

}  // namespace annulus
