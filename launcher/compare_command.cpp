#include "launcher/compare_command.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "kernels/device.h"
#include "kernels/error.h"
#include "launcher/child_process.h"
#include "launcher/comparison.h"
#include "launcher/config_file.h"
#include "launcher/device_choice.h"
#include "launcher/print.h"
#include "launcher/progress.h"
#include "runtime/metrics.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

void check(const CompareArguments& arguments, const Settings& settings, const Launch& launch) {
  if (launch.present()) {
    throw ConfigurationError("annulus compare starts the ranks of each run itself; type it without mpirun or srun (" +
                             launch.evidence + ")");
  }
  for (auto count = arguments.ranks.begin(); count != arguments.ranks.end(); ++count) {
    if (std::find(arguments.ranks.begin(), count, *count) == count) continue;
    throw ConfigurationError(fmt::format("--ranks has {} twice", *count));
  }
  if (settings.train.steps < 2) {
    throw ConfigurationError(
        "train.steps is 1, and the first step of each run warms up and is not counted; set train.steps=4 or so");
  }
}

// What the machine gives to that many ranks.
MeasuredCount seat_of(int ranks, const Settings& settings) {
  if (settings.runtime.device == DeviceKind::cuda) {
    const int gpus = cuda_device_count();
    return {.ranks = ranks, .processors = std::min(ranks, gpus), .shared = ranks > gpus};
  }
  const Cores cores = available_cores(process_variables());
  const Launch launch = {.kind = Launch::Kind::mpirun, .ranks = ranks, .local_ranks = ranks};
  const int threads = settings.runtime.threads > 0 ? settings.runtime.threads : threads_per_rank(launch, cores);
  return {.ranks = ranks,
          .processors = std::min(ranks * threads, cores.own),
          .shared = int64_t{ranks} * threads > cores.own};
}

// The last line of a log that says why its run ended.
std::string last_error(const fs::path& log) {
  std::ifstream file(log);
  const std::string beginning = "annulus: error: ";
  std::string error;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(beginning)) error = line.substr(beginning.size());
  }
  return error;
}

std::vector<StepReport> run(const CompareArguments& arguments, int ranks, const fs::path& folder) {
  const fs::path output = folder / fmt::format("{}-ranks", ranks);
  const fs::path log = output.string() + ".log";
  std::vector<std::string> words = {"train", arguments.config.string()};
  std::copy_if(arguments.overrides.begin(), arguments.overrides.end(), std::back_inserter(words),
               [](const std::string& word) { return !word.starts_with("output."); });
  words.insert(words.end(),
               {"output.directory=" + output.string(), "output.save_model=false", "--ranks", std::to_string(ranks)});
  const int exit_code = run_this_program(words, log);
  if (exit_code == 0) return read_metrics(output / "metrics.jsonl");
  const auto known =
      exit_code <= static_cast<int>(ExitCode::memory) ? static_cast<ExitCode>(exit_code) : ExitCode::failure;
  const std::string error = last_error(log);
  throw Error(fmt::format("the run with {} ranks failed ({}); '{}' has all it said", ranks,
                          error.empty() ? fmt::format("exit code {}", exit_code) : error, log.string()),
              known, SourceLocation::current());
}

}  // namespace

void compare_command(const CompareArguments& arguments, const Launch& launch) {
  Settings settings = load_settings(arguments.config, arguments.overrides);
  check(arguments, settings, launch);
  settings.runtime.device = choose_device(settings);
  start_log(0);
  const fs::path folder = settings.output.directory / "compare";
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    throw EnvironmentError(fmt::format("output.directory: '{}' cannot be made ({}); choose another one",
                                       folder.string(), failure.message()));
  }
  std::vector<MeasuredCount> counts;
  for (const int ranks : arguments.ranks) counts.push_back(seat_of(ranks, settings));
  for (int round = 1; round <= arguments.rounds; ++round) {
    for (MeasuredCount& count : counts) {
      spdlog::info("round {} of {}: {} ranks", round, arguments.rounds, count.ranks);
      count.runs.push_back(run(arguments, count.ranks, folder));
    }
  }
  const std::vector<ComparedCount> compared = compare(counts);
  const char* processors = settings.runtime.device == DeviceKind::cuda ? "GPUs" : "cores";
  print(arguments.json ? as_json(compared, processors) : as_table(compared, processors));
}

}  // namespace annulus
