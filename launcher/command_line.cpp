#include "launcher/command_line.h"

#include <CLI/CLI.hpp>
#include <limits>

#include "kernels/error.h"
#include "launcher/config_keys.h"

namespace annulus {
namespace {

void add_train(CLI::App& app, TrainArguments& train) {
  CLI::App& command = *app.add_subcommand("train", "Train the model that a configuration file describes");
  command.add_option("CONFIG", train.config, "Configuration file (YAML)")->required()->option_text(" ");
  command.add_option("SETTINGS", train.overrides, "Settings that win over the file's, as section.key=value")
      ->option_text(" ");
  command.add_option("--ranks", train.ranks, "Start that many ranks under mpirun; without it, one rank")
      ->option_text("N")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()));
  command.add_flag("--dry-run", train.dry_run, "Check everything and say what would be trained, without training");
  command.footer(config_keys_help);
}

}  // namespace

CommandLine parse_command_line(std::span<const std::string> words) {
  CommandLine line;
  CLI::App app("Annulus trains long-context transformers on many ranks.", "annulus");
  app.set_version_flag("--version", "annulus " ANNULUS_VERSION);
  app.require_subcommand(1);
  add_train(app, line.train);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend() - 1));  // CLI11 takes them last word first
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
  } catch (const CLI::CallForVersion& version) {
    line.answer = std::string(version.what()) + "\n";
  } catch (const CLI::ParseError& error) {
    throw ConfigurationError(std::string(error.what()) + "; see `annulus train --help`");
  }
  return line;
}

}  // namespace annulus
