// Small random Qwen3 models and documents on disk, for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "tests/support/tensors.h"

namespace annulus {

struct TinyModel {
  int64_t hidden = 32;
  int64_t intermediate = 48;
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 16;  // not hidden / heads
  int64_t vocabulary = 101;
  bool tied = true;
};

// Weights under which no part of the model is idle: matrices normal with a deviation of 0.5 / sqrt(inputs), the
// embedding and the head around 0.1, norms between 0.7 and 1.3.
HostTensors random_weights(const TinyModel& model, uint64_t seed);

// A Hugging Face directory: config.json and model.safetensors with random_weights().
void write_model(const std::filesystem::path& directory, const TinyModel& model, uint64_t seed);

struct TinyDocument {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;  // as in files: not shifted, -100 where there is no answer; empty: a copy of input_ids
};

// One document of each length, of random tokens. About a third of the answers are missing, in the first quarter, where
// a prompt would be, and here and there.
std::vector<TinyDocument> random_documents(std::span<const int64_t> lengths, int64_t vocabulary, uint64_t seed);

// As JSON Lines.
void write_documents(const std::filesystem::path& path, std::span<const TinyDocument> documents);

}  // namespace annulus
