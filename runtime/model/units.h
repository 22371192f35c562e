// The parameters of a Qwen3 decoder: their Hugging Face names and shapes, and the units they are gathered in.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/parameter_unit.h"
#include "runtime/model_config.h"

namespace annulus {

// Unit 0 is the embedding, 1 … layers the decoder layers, layers + 1 the final norm with the head. A tied model has no
// head of its own: its embedding unit is used twice.
std::vector<ParameterUnit> qwen3_units(const ModelConfig& model);

inline size_t embedding_unit() {
  return 0;
}
inline size_t layer_unit(int64_t layer) {
  return static_cast<size_t>(layer) + 1;
}
inline size_t head_unit(const ModelConfig& model) {
  return static_cast<size_t>(model.layers) + 1;
}

// A decoder layer's weights, or their gradients, in its unit's flat buffer. Matrices are (outputs, inputs).
struct LayerParameters {
  View input_norm;  // (hidden)
  View query;       // (heads · head_dim, hidden)
  View key;         // (kv_heads · head_dim, hidden)
  View value;       // (kv_heads · head_dim, hidden)
  View output;      // (hidden, heads · head_dim)
  View query_norm;  // (head_dim)
  View key_norm;    // (head_dim)
  View mlp_norm;    // (hidden)
  View gate_up;     // (2 · intermediate, hidden): gate above up
  View down;        // (hidden, intermediate)

  LayerParameters(const ParameterUnit& unit, const View& flat);
};

}  // namespace annulus
