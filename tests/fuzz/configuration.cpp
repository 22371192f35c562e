// The run configuration: a YAML file, and after a byte 0xFF, which no UTF-8 holds, words of the command line, one after
// each further 0xFF.
#include <string>
#include <vector>

#include "launcher/config_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace {

constexpr char separator = '\xFF';

// Cuts `bytes` at the next separator.
std::string_view take_part(std::string_view& bytes) {
  const std::string_view part = annulus::take(bytes, bytes.find(separator));
  annulus::take(bytes, 1);
  return part;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const annulus::MemoryFolder folder;
  static const annulus::MemoryFile file(folder, "run.yaml");
  std::string_view rest = annulus::text_of(data, size);
  file.write(take_part(rest));
  std::vector<std::string> words;
  while (!rest.empty()) words.emplace_back(take_part(rest));

  annulus::read_or_refuse(annulus::ExitCode::configuration, [&] {
    const annulus::Settings settings = annulus::load_settings(file.path(), words);
    annulus::require(settings.data.sequence_length >= 1 && settings.train.steps >= 1, "settings are possible values");
    annulus::require(settings.optimizer.min_learning_rate <= settings.optimizer.learning_rate, "the rate falls");
  });
  return 0;
}
