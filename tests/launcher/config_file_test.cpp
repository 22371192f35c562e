#include "launcher/config_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/error.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

using ::testing::Test;

const std::string required_keys = "model:\n  path: m\ndata:\n  train: d\n  sequence_length: 8\n";

class ConfigFile : public Test {
 protected:
  Settings load(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return load_settings(folder_.write("run.yaml", text), overrides);
  }

  // What is said about a file (its name without the folder) and overrides that must be refused.
  std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
      load(text, overrides);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::configuration);
      std::string message = error.what();
      const std::string prefix = folder_.path().string() + "/";
      if (message.starts_with(prefix)) message.erase(0, prefix.size());
      return message;
    }
    return "accepted";
  }

  // The same for one key set on the command line.
  std::string refusal_of(const std::string& word) { return refusal(required_keys, {word}); }
  Settings with(const std::string& word) { return load(required_keys, {word}); }

  TemporaryDirectory folder_;
};

TEST_F(ConfigFile, MayHoldTheRequiredKeysAlone) {
  const Settings settings = load(required_keys);
  EXPECT_EQ(settings.data.sequence_length, 8);
  EXPECT_EQ(settings.model.dtype, DType::bfloat16);
  EXPECT_EQ(settings.train.steps, 100);
}

TEST_F(ConfigFile, SetsEveryKey) {
  const Settings s = load(R"(
model: {path: m, init: random, seed: 18446744073709551615, dtype: float32}
data: {train: d.jsonl, sequence_length: 2147483647, packing: none, shuffle: false, seed: 0, pad_token_id: 9}
attention: {sliding_window: 128}
parallel: {context_parallel_size: 4, data_parallel_size: 2, layout: contiguous}
optimizer: {learning_rate: 2.5e-3, betas: [0.8, 0.99], eps: 1e-6, weight_decay: 0.01, max_grad_norm: 0,
            schedule: constant, warmup_steps: 7, min_learning_rate: 1e-5}
train: {steps: 9, global_batch_size: 6, micro_batch_size: 3}
memory: {}
output: {directory: out, save_model: false, max_shard_size: 500MB}
debug: {save_gradients: true, poison: true}
runtime: {device: cpu, threads: 5}
)");
  EXPECT_EQ(s.model.init, Initialization::random);
  EXPECT_EQ(s.model.seed, 18446744073709551615U);
  EXPECT_EQ(s.model.dtype, DType::float32);
  EXPECT_EQ(s.data.sequence_length, 2147483647);
  EXPECT_EQ(s.data.packing, Packing::none);
  EXPECT_FALSE(s.data.shuffle);
  EXPECT_EQ(s.data.seed, 0U);
  EXPECT_EQ(s.data.pad_token_id, 9);
  EXPECT_EQ(s.attention.sliding_window, 128);
  EXPECT_EQ(s.parallel.context_parallel_size, 4);
  EXPECT_EQ(s.parallel.data_parallel_size, 2);
  EXPECT_EQ(s.parallel.layout, LayoutKind::contiguous);
  EXPECT_EQ(s.optimizer.learning_rate, 2.5e-3);
  EXPECT_EQ(s.optimizer.beta1, 0.8);
  EXPECT_EQ(s.optimizer.beta2, 0.99);
  EXPECT_EQ(s.optimizer.eps, 1e-6);
  EXPECT_EQ(s.optimizer.weight_decay, 0.01);
  EXPECT_EQ(s.optimizer.max_grad_norm, 0);
  EXPECT_EQ(s.optimizer.schedule, ScheduleKind::constant);
  EXPECT_EQ(s.optimizer.warmup_steps, 7);
  EXPECT_EQ(s.optimizer.min_learning_rate, 1e-5);
  EXPECT_EQ(s.train.steps, 9);
  EXPECT_EQ(s.train.global_batch_size, 6);
  EXPECT_EQ(s.train.micro_batch_size, 3);
  EXPECT_EQ(s.output.directory, "out");
  EXPECT_FALSE(s.output.save_model);
  EXPECT_EQ(s.output.max_shard_size, 500'000'000);
  EXPECT_TRUE(s.debug.save_gradients);
  EXPECT_TRUE(s.debug.poison);
  EXPECT_EQ(s.runtime.device, DeviceKind::cpu);
  EXPECT_EQ(s.runtime.threads, 5);
}

TEST_F(ConfigFile, ReadsNumbersAsPeopleWriteThem) {
  for (const auto& [text, value] : std::vector<std::pair<std::string, double>>{
           {"3e-4", 3e-4}, {"1.0e-4", 1e-4}, {"1e-6", 1e-6}, {"1E-3", 1e-3}, {"+.5", .5}, {"1", 1}, {"0.25", .25}}) {
    EXPECT_EQ(with("optimizer.learning_rate=" + text).optimizer.learning_rate, value) << text;
    EXPECT_EQ(load(required_keys + "optimizer:\n  learning_rate: " + text + "\n").optimizer.learning_rate, value)
        << text;
  }
}

TEST_F(ConfigFile, DistinguishesNoWindowFromTheModelsWindow) {
  EXPECT_EQ(with("attention.sliding_window=none").attention.sliding_window, 0);
  EXPECT_EQ(with("attention.sliding_window=null").attention.sliding_window, std::nullopt);
  EXPECT_EQ(with("attention.sliding_window=1").attention.sliding_window, 1);
  EXPECT_EQ(load(required_keys + "attention: {sliding_window: null}").attention.sliding_window, std::nullopt);
  EXPECT_EQ(load(required_keys + "attention: {sliding_window: none}").attention.sliding_window, 0);
  EXPECT_EQ(refusal_of("attention.sliding_window=0"),
            "command line: attention.sliding_window is 0; expected null, none or an integer of at least 1");
}

TEST_F(ConfigFile, TakesAutoWhereItIsOffered) {
  EXPECT_EQ(with("runtime.threads=auto").runtime.threads, 0);
  EXPECT_EQ(with("parallel.context_parallel_size=auto").parallel.context_parallel_size, 0);
  EXPECT_EQ(refusal_of("train.steps=auto"), "command line: train.steps is auto; expected an integer of at least 1");
  EXPECT_EQ(refusal_of("runtime.threads=0"),
            "command line: runtime.threads is 0; expected auto or an integer from 1 to 2147483647");
}

TEST_F(ConfigFile, ResolvesItsPathsFromItsFolderAndOthersFromTheWorkingDirectory) {
  const Settings settings =
      load("model: {path: ../m}\ndata: {train: /abs/d, sequence_length: 8}\noutput: {directory: o}");
  EXPECT_EQ(settings.model.path, (folder_.path() / "../m").lexically_normal());
  EXPECT_EQ(settings.data.train, "/abs/d");
  EXPECT_EQ(settings.output.directory, "o");
  EXPECT_EQ(with("model.path=x/m").model.path, "x/m");
  EXPECT_EQ(load(required_keys).output.directory, "runs/run");
}

TEST_F(ConfigFile, TakesPathsFromTheCommandLineLetterByLetter) {
  EXPECT_EQ(with("data.train=a: b #c=d{e}").data.train, "a: b #c=d{e}");
}

TEST_F(ConfigFile, LetsTheCommandLineWin) {
  EXPECT_EQ(load(required_keys + "train: {steps: 5}", {"train.steps=7"}).train.steps, 7);
  EXPECT_EQ(with("optimizer.betas=[0.5, 0.75]").optimizer.beta2, 0.75);
}

TEST_F(ConfigFile, RefusesAnUnknownKeyAndNamesTheNearest) {
  EXPECT_EQ(refusal(required_keys + "optimizer:\n  learing_rate: 1\n"),
            "run.yaml:7: unknown key optimizer.learing_rate; nearest: optimizer.learning_rate");
  EXPECT_EQ(refusal_of("optimizer.learing_rate=1"),
            "command line: unknown key optimizer.learing_rate; nearest: optimizer.learning_rate");
}

TEST_F(ConfigFile, RefusesAMisplacedKeyAndNamesItsPlace) {
  EXPECT_EQ(refusal(required_keys + "train:\n  learning_rate: 1\n"),
            "run.yaml:7: unknown key train.learning_rate; nearest: optimizer.learning_rate");
  EXPECT_EQ(refusal(required_keys + "learning_rate: 1\n"),
            "run.yaml:6: unknown key learning_rate; nearest: optimizer.learning_rate");
  EXPECT_EQ(refusal(required_keys + "memory:\n  steps: 1\n"),
            "run.yaml:7: unknown key memory.steps; nearest: train.steps");
}

TEST_F(ConfigFile, RefusesAnUnknownSection) {
  EXPECT_EQ(refusal(required_keys + "optimiser:\n  eps: 1\n"),
            "run.yaml:6: unknown section optimiser; nearest: optimizer");
}

TEST_F(ConfigFile, RefusesDottedNamesAndBareSections) {
  EXPECT_EQ(refusal("model.path: m\n"),
            "run.yaml:1: model.path: dotted names are for the command line; write a section and its keys");
  EXPECT_EQ(refusal(required_keys + "train: 3\n"), "run.yaml:6: train is a section; expected keys below it");
  EXPECT_EQ(refusal_of("train=3"), "command line: train is a section; expected keys below it");
  EXPECT_EQ(refusal_of("train.steps"), "command line: train.steps: expected section.key=value");
}

TEST_F(ConfigFile, RefusesRepeatedKeysAndSections) {
  EXPECT_EQ(refusal(required_keys + "train:\n  steps: 1\n  steps: 1\n"),
            "run.yaml:8: train.steps is given twice; keep one");
  EXPECT_EQ(refusal(required_keys + "model:\n  seed: 3\n"), "run.yaml:6: model is given twice; keep one");
  EXPECT_EQ(refusal(required_keys, {"train.steps=1", "train.steps=2"}),
            "command line: train.steps is given twice; keep one");
}

TEST_F(ConfigFile, NamesAllRequiredKeysThatAreMissing) {
  EXPECT_EQ(refusal(""), "run.yaml: missing model.path, data.train, data.sequence_length");
  EXPECT_EQ(refusal("model: {path: m}\n", {"data.train=d"}), "run.yaml: missing data.sequence_length");
}

TEST_F(ConfigFile, RefusesWrongTypesAndImpossibleValues) {
  for (const auto& [word, complaint] : std::vector<std::pair<std::string, std::string>>{
           {"train.steps=0", "train.steps is 0; expected an integer of at least 1"},
           {"train.steps=1.5", "train.steps is 1.5; expected an integer of at least 1"},
           {"train.steps=9223372036854775808", "train.steps is 9223372036854775808; expected an integer of at least 1"},
           {"train.steps=", "train.steps is ; expected an integer of at least 1"},
           {"train.steps=null", "train.steps is null; expected an integer of at least 1"},
           {"train.steps=[1]", "train.steps is [1]; expected an integer of at least 1"},
           {"train.steps=7 steps", "train.steps is 7 steps; expected an integer of at least 1"},
           {"data.sequence_length=2147483648",
            "data.sequence_length is 2147483648; expected an integer from 1 to 2147483647"},
           {"data.pad_token_id=-1", "data.pad_token_id is -1; expected an integer from 0 to 2147483647"},
           {"model.seed=-1", "model.seed is -1; expected an integer from 0 to 18446744073709551615"},
           {"model.dtype=float16", "model.dtype is float16; expected bfloat16 or float32"},
           {"data.shuffle=yes", "data.shuffle is yes; expected true or false"},
           {"data.shuffle=1", "data.shuffle is 1; expected true or false"},
           {"optimizer.learning_rate=fast", "optimizer.learning_rate is fast; expected a number of at least 0"},
           {"optimizer.learning_rate=nan", "optimizer.learning_rate is nan; expected a number of at least 0"},
           {"optimizer.learning_rate=inf", "optimizer.learning_rate is inf; expected a number of at least 0"},
           {"optimizer.learning_rate=-1e-4", "optimizer.learning_rate is -1e-4; expected a number of at least 0"},
           {"optimizer.eps=0", "optimizer.eps is 0; expected a number above 0"},
           {"optimizer.betas=0.9", "optimizer.betas is 0.9; expected a list of two numbers, such as [0.9, 0.95]"},
           {"optimizer.betas=[0.9]", "optimizer.betas is [0.9]; expected a list of two numbers, such as [0.9, 0.95]"},
           {"optimizer.betas=[0.9, 1]",
            "optimizer.betas is [0.9, 1]; expected a list of two numbers from 0 to below 1, such as [0.9, 0.95]"},
           {"model.path=", "model.path is ; expected a path"},
       }) {
    EXPECT_EQ(refusal_of(word), "command line: " + complaint);
  }
}

TEST_F(ConfigFile, ReadsSizesInBytesAndDecimalUnits) {
  const auto size = [this](const std::string& text) {
    return load(required_keys, {"output.max_shard_size=" + text}).output.max_shard_size;
  };
  EXPECT_EQ(size("1"), 1);
  EXPECT_EQ(size("123456789012"), 123456789012);
  EXPECT_EQ(size("7KB"), 7000);
  EXPECT_EQ(size("5GB"), 5'000'000'000);
  EXPECT_EQ(size("9000000TB"), 9'000'000'000'000'000'000);
  for (const std::string text : {"0", "0GB", "-1", "GB", "5G", "5 GB", "5GiB", "1.5GB", "9300000TB", "9e9", "[5GB]"}) {
    EXPECT_EQ(refusal_of("output.max_shard_size=" + text),
              "command line: output.max_shard_size is " + text +
                  "; expected a number of bytes of at least 1, such as 5000000000 or 5GB");
  }
}

TEST_F(ConfigFile, RefusesQuotedNumbersAndBooleans) {
  EXPECT_EQ(refusal(required_keys + "train:\n  steps: \"5\"\n"),
            "run.yaml:7: train.steps is \"5\"; expected an integer of at least 1");
  EXPECT_EQ(refusal(required_keys + "output:\n  save_model: 'true'\n"),
            "run.yaml:7: output.save_model is \"true\"; expected true or false");
}

TEST_F(ConfigFile, RefusesALearningRateThatWouldRise) {
  EXPECT_EQ(refusal_of("optimizer.min_learning_rate=0.5"),
            "run.yaml: optimizer.min_learning_rate is 0.5; expected at most optimizer.learning_rate, 0.0001");
}

TEST_F(ConfigFile, NamesTheLineOfAYamlMistake) {
  const std::string message = refusal("model:\n  path: [m\ndata: 3\n");
  EXPECT_TRUE(message.starts_with("run.yaml:3: not YAML: ")) << message;
  EXPECT_EQ(refusal(required_keys + "---\ntrain: {steps: 1}\n"),
            "run.yaml:6: not YAML: a second document begins, or a comma stands outside of brackets");
  EXPECT_EQ(refusal("- 1\n"), "run.yaml: expected sections with keys, such as `model:` with `path: DIR` below it");
}

// yaml-cpp alone would read the first two for ever and leave out the rest of the list.
TEST_F(ConfigFile, RefusesACommaOutsideOfBrackets) {
  EXPECT_EQ(refusal(","), "run.yaml:1: not YAML: a second document begins, or a comma stands outside of brackets");
  EXPECT_EQ(refusal("\n,"), "run.yaml:2: not YAML: a second document begins, or a comma stands outside of brackets");
  EXPECT_EQ(refusal_of("optimizer.betas=[0.9, 0.95], 1"),
            "command line: optimizer.betas=[0.9, 0.95], 1: not a list: a second document begins, or a comma stands "
            "outside of brackets");
}

TEST_F(ConfigFile, MustExist) {
  EXPECT_THROW(load_settings(folder_.path() / "absent.yaml", {}), ConfigurationError);
  EXPECT_THROW(load_settings(folder_.path(), {}), ConfigurationError);
  EXPECT_THROW(load_settings(folder_.path() / std::string(5000, 'a'), {}), ConfigurationError);  // no name is so long
}

}  // namespace
}  // namespace annulus
