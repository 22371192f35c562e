#include "launcher/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>

#include "kernels/error.h"
#include "launcher/config_keys.h"
#include "launcher/nearest.h"

namespace annulus {
namespace {

constexpr int most = std::numeric_limits<int>::max();

// What every command on a run takes.
template <class Arguments>
CLI::App& add_command(CLI::App& app, const char* name, const char* meaning, Arguments& arguments) {
  CLI::App& command = *app.add_subcommand(name, meaning);
  command.add_option("CONFIG", arguments.config, "Configuration file (YAML)")->required()->option_text(" ");
  command.add_option("SETTINGS", arguments.overrides, "Settings that win over the file's, as section.key=value")
      ->option_text(" ");
  command.footer(config_keys_help);
  return command;
}

// The command comes first; instead of one, options that say something themselves.
void check_command(const CLI::App& app, std::span<const std::string> words) {
  if (words.size() < 2 || words[1].starts_with('-')) return;
  std::string nearest;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    if (name == words[1]) return;
    if (nearest.empty() || edit_distance(words[1], name) < edit_distance(words[1], nearest)) nearest = name;
  }
  throw ConfigurationError(
      fmt::format("'{}' is no command; did you mean `annulus {}`? See `annulus --help`", words[1], nearest));
}

}  // namespace

CommandLine parse_command_line(std::span<const std::string> words) {
  CommandLine line;
  CLI::App app("Annulus trains long-context transformers on many ranks.", "annulus");
  app.set_version_flag("--version", "annulus " ANNULUS_VERSION);
  app.require_subcommand(1);
  TrainArguments train;
  CLI::App& train_command = add_command(app, "train", "Train the model that a configuration file describes", train);
  train_command.add_option("--ranks", train.ranks, "Start that many ranks under mpirun; without it, one rank")
      ->option_text("N")
      ->check(CLI::Range(1, most));
  train_command.add_flag("--dry-run", train.dry_run,
                         "Check everything and say what would be trained, without training");
  PlanArguments plan;
  CLI::App& plan_command = add_command(app, "plan", "Say what that run would need, without running it", plan);
  plan_command.add_option("--ranks", plan.ranks, "Plan for that many ranks; without it, one rank")
      ->option_text("N")
      ->check(CLI::Range(1, most));
  plan_command.add_flag("--json", plan.json, "One JSON object instead of a table");
  plan_command.add_flag("--data", plan.data,
                        "Work and traffic of the first step as data.train packs it, instead of the worst case");
  CompareArguments compare;
  CLI::App& compare_command = add_command(app, "compare", "Run it at several rank counts and compare them", compare);
  compare_command.add_option("--ranks", compare.ranks, "The counts; the first is the baseline")
      ->option_text("1,2,4")
      ->delimiter(',')
      ->required()
      ->check(CLI::Range(1, most));
  compare_command.add_option("--rounds", compare.rounds, "How often each count runs, by turns; 3 unless given")
      ->option_text("N")
      ->check(CLI::Range(1, most));
  compare_command.add_flag("--json", compare.json, "A JSON list instead of a table");
  check_command(app, words);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend() - 1));  // CLI11 takes them last word first
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
  } catch (const CLI::CallForVersion& version) {
    line.answer = std::string(version.what()) + "\n";
  } catch (const CLI::ParseError& error) {
    throw ConfigurationError(std::string(error.what()) + "; see `annulus --help`");
  }
  if (plan_command.parsed()) {
    line.command = std::move(plan);
  } else if (compare_command.parsed()) {
    line.command = std::move(compare);
  } else {
    line.command = std::move(train);
  }
  return line;
}

}  // namespace annulus
