#include "launcher/command_line.h"

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "launcher/config_keys.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

using Words = std::vector<std::string>;

CommandLine parse(Words words) {
  words.insert(words.begin(), "annulus");
  return parse_command_line(words);
}

TEST(CommandLine, TakesAConfigurationSettingsAndFlagsInAnyOrder) {
  const TrainArguments train = std::get<TrainArguments>(
      parse({"train", "a.yaml", "train.steps=3", "--ranks", "4", "optimizer.betas=[0.9, 0.95]", "--dry-run"}).command);
  EXPECT_EQ(train.config, "a.yaml");
  EXPECT_EQ(train.overrides, (Words{"train.steps=3", "optimizer.betas=[0.9, 0.95]"}));
  EXPECT_EQ(train.ranks, 4);
  EXPECT_TRUE(train.dry_run);
}

TEST(CommandLine, LeavesOutWhatWasNotTyped) {
  const CommandLine line = parse({"train", "a.yaml"});
  EXPECT_TRUE(line.answer.empty());
  EXPECT_TRUE(std::get<TrainArguments>(line.command).overrides.empty());
  EXPECT_EQ(std::get<TrainArguments>(line.command).ranks, std::nullopt);
  EXPECT_FALSE(std::get<TrainArguments>(line.command).dry_run);
}

TEST(CommandLine, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(parse({}), ConfigurationError);
  EXPECT_THROW(parse({"fly"}), ConfigurationError);
  EXPECT_THROW(parse({"train"}), ConfigurationError);
  EXPECT_THROW(parse({"train", "a.yaml", "--rank", "2"}), ConfigurationError);
  EXPECT_THROW(parse({"train", "a.yaml", "--ranks", "0"}), ConfigurationError);
  EXPECT_THROW(parse({"train", "a.yaml", "--ranks", "two"}), ConfigurationError);
  EXPECT_THROW(parse({"train", "a.yaml", "--ranks"}), ConfigurationError);
}

TEST(CommandLine, NamesTheCommandThatWasMeant) {
  expect_says(message_of<ConfigurationError>([] { parse({"trian", "a.yaml"}); }), {"'trian'", "`annulus train`"});
  expect_says(message_of<ConfigurationError>([] { parse({"comapre"}); }), {"'comapre'", "`annulus compare`"});
}

TEST(CommandLine, SaysItsVersion) {
  EXPECT_EQ(parse({"--version"}).answer.substr(0, 8), "annulus ");
}

TEST(CommandLine, ExplainsEveryKeyInTheHelpOfTrain) {
  const std::string help = parse({"train", "--help"}).answer;
  for (const ConfigKey& key : config_keys()) EXPECT_NE(help.find(key.name), std::string::npos) << key.name;
  EXPECT_NE(help.find("--ranks"), std::string::npos);
  EXPECT_NE(parse({"--help"}).answer.find("train"), std::string::npos);
}

}  // namespace
}  // namespace annulus
