// What was typed after `annulus`.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace annulus {

struct TrainArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;  // section.key=value
  std::optional<int> ranks;            // --ranks
  bool dry_run = false;                // --dry-run
};

struct PlanArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::optional<int> ranks;
  bool json = false;  // --json
  bool data = false;  // --data
};

struct CompareArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::vector<int> ranks;  // --ranks, the first is the baseline
  int rounds = 3;          // --rounds
  bool json = false;       // --json
};

struct CommandLine {
  std::string answer;  // what --help or --version asked for; if not empty, there is nothing else to do
  std::variant<TrainArguments, PlanArguments, CompareArguments> command;
};

// `words` with the name of the program first. Throws ConfigurationError.
CommandLine parse_command_line(std::span<const std::string> words);

}  // namespace annulus
