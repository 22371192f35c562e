// Trainings of small random models through the real executable.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"
#include "tests/whole/process.h"

namespace annulus {

// A model and its documents in a folder of their own, and what all trainings of them have in common: float32 on the CPU
// with one thread, gradients saved, and `settings`, words of section.key=value.
class TinyRun {
 public:
  TinyRun(const TinyModel& model, std::span<const TinyDocument> documents, Words settings);

  // Trains on `ranks` ranks into output(name), and the output directory is returned. Throws where it fails.
  std::filesystem::path train(const std::string& name, int ranks, const Words& more_settings = {}) const;

  // The same, with whatever outcome.
  [[nodiscard]] Finished start(const std::string& name, int ranks, const Words& more_settings = {},
                               const std::map<std::string, std::string>& environment = {}) const;

  // The words behind `annulus` that start it on one rank.
  [[nodiscard]] Words training(const std::string& name, const Words& more_settings) const;

  // `annulus compare` of the same, with `options` such as --ranks.
  [[nodiscard]] Finished compare(const std::string& name, const Words& options, const Words& more_settings = {}) const;

  // `annulus plan --json` of the same.
  [[nodiscard]] Finished plan(int ranks, const Words& more_settings = {}) const;

  [[nodiscard]] std::filesystem::path output(const std::string& name) const { return directory_ / "output" / name; }
  [[nodiscard]] std::filesystem::path model() const { return directory_ / "model"; }
  [[nodiscard]] std::filesystem::path weights() const { return model() / "model.safetensors"; }
  [[nodiscard]] std::filesystem::path documents() const { return directory_ / "documents.jsonl"; }

 private:
  [[nodiscard]] Words command(const std::string& name, const Words& more_settings) const;

  TemporaryDirectory directory_;
  Words settings_;
};

}  // namespace annulus
