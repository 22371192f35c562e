#include "tests/whole/tiny_run.h"

#include <stdexcept>

namespace annulus {

TinyRun::TinyRun(const TinyModel& model, std::span<const TinyDocument> documents, Words settings)
    : settings_(std::move(settings)) {
  write_model(this->model(), model, 1);
  write_documents(this->documents(), documents);
  directory_.write("config.yaml",
                   "model: {path: model, dtype: float32}\n"
                   "data: {train: documents.jsonl, shuffle: false}\n"
                   "optimizer: {schedule: constant}\n"
                   "debug: {save_gradients: true}\n"
                   "runtime: {device: cpu, threads: 1}\n");
}

Words TinyRun::command(const std::string& name, const Words& more_settings) const {
  Words words = {name, (directory_ / "config.yaml").string()};
  words.insert(words.end(), settings_.begin(), settings_.end());
  words.insert(words.end(), more_settings.begin(), more_settings.end());
  return words;
}

Finished TinyRun::plan(int ranks, const Words& more_settings) const {
  Words words = command("plan", more_settings);
  words.insert(words.end(), {"--json", "--ranks", std::to_string(ranks)});
  return run_annulus(words);
}

Words TinyRun::training(const std::string& name, const Words& more_settings) const {
  Words words = command("train", more_settings);
  words.push_back("output.directory=" + output(name).string());
  return words;
}

Finished TinyRun::compare(const std::string& name, const Words& options, const Words& more_settings) const {
  Words words = training(name, more_settings);
  words.front() = "compare";
  words.insert(words.end(), options.begin(), options.end());
  return run_annulus(words);
}

Finished TinyRun::start(const std::string& name, int ranks, const Words& more_settings,
                        const std::map<std::string, std::string>& environment) const {
  Words words = training(name, more_settings);
  if (ranks > 1) words.insert(words.end(), {"--ranks", std::to_string(ranks)});
  return run_annulus(words, environment);
}

std::filesystem::path TinyRun::train(const std::string& name, int ranks, const Words& more_settings) const {
  const Finished finished = start(name, ranks, more_settings);
  if (finished.exit_code != 0) throw std::runtime_error("training " + name + " failed:\n" + finished.output);
  return output(name);
}

}  // namespace annulus
