// The shape of a Qwen3 decoder as Hugging Face's config.json gives it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace annulus {

struct ModelConfig {
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  bool tied = false;                   // the head is the embedding
  std::vector<int64_t> layer_windows;  // per layer: 0 no window, else the keys a query sees, itself included

  // Reads DIRECTORY/config.json; throws DataError naming the file and the key for what is missing, mistyped, impossible
  // or not Qwen3 as we compute it (other architectures, activations, biases, rope scaling).
  static ModelConfig read(const std::filesystem::path& directory);

  // The same with every layer's window replaced: nullopt leaves them, 0 removes them.
  [[nodiscard]] ModelConfig with_window(std::optional<int64_t> window) const;

  [[nodiscard]] int64_t parameters() const;  // a tied head counts once
};

}  // namespace annulus
