#include "launcher/config_keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "launcher/config_file.h"
#include "launcher/nearest.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(EditDistance, CountsTheFewestChanges) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("learing_rate", "learning_rate"), 1);
  EXPECT_EQ(edit_distance("modle", "model"), 1);  // a swap is one change
  EXPECT_EQ(edit_distance("ca", "abc"), 3);       // optimal string alignment: no part is changed twice
}

TEST(EditDistance, LooksAtTheFirst64Letters) {
  const std::string page(10000, 'a');
  EXPECT_EQ(edit_distance(page, "aa"), 62);
  EXPECT_EQ(edit_distance("aa", page), 62);
  EXPECT_EQ(edit_distance(page, page + "b"), 0);
}

TEST(NearestKey, IsTheOneThatWasMeant) {
  EXPECT_EQ(nearest_config_key("optimizer.learing_rate"), "optimizer.learning_rate");
  EXPECT_EQ(nearest_config_key("learning_rate"), "optimizer.learning_rate");
  EXPECT_EQ(nearest_config_key("training.learning_rate"), "optimizer.learning_rate");
  EXPECT_EQ(nearest_config_key("modle.seed"), "model.seed");
  EXPECT_EQ(nearest_config_key("dta.seed"), "data.seed");
  EXPECT_EQ(nearest_config_key("data.sequence_lenght"), "data.sequence_length");
  EXPECT_EQ(nearest_config_key("model.sliding_window"), "attention.sliding_window");
  EXPECT_EQ(nearest_config_section("optimisers"), "optimizer");
}

TEST(ConfigKeys, AreNamedOnceAndBelongToSections) {
  std::set<std::string_view> names;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_TRUE(is_config_section(key.section())) << key.name;
    EXPECT_EQ(find_config_key(key.name), &key);
  }
  EXPECT_EQ(find_config_key("model"), nullptr);
}

TEST(ConfigKeys, AreAllInTheHelp) {
  const std::string help = config_keys_help();
  for (const ConfigKey& key : config_keys()) EXPECT_NE(help.find(key.name), std::string::npos) << key.name;
}

TEST(ConfigKeys, AreAllDocumentedWithTheirDefaults) {
  const std::string text = text_of(std::filesystem::path(DOCS_FOLDER) / "configuration.md");
  for (const ConfigKey& key : config_keys()) {
    const std::string row =
        fmt::format("| `{}` | {} |", key.name, key.required() ? "required" : fmt::format("`{}`", key.fallback));
    EXPECT_NE(text.find(row), std::string::npos) << "docs/configuration.md lacks: " << row;
  }
}

// Nothing leads the fuzzer to a key that is not there.
TEST(ConfigKeys, AreAllInTheFuzzersDictionary) {
  const std::string words = text_of(std::filesystem::path(DOCS_FOLDER).parent_path() / "tests/fuzz/configuration.dict");
  for (const ConfigKey& key : config_keys()) {
    const std::string word = fmt::format("\"{}:\"", key.name.substr(key.section().size() + 1));
    EXPECT_NE(words.find(word), std::string::npos) << "tests/fuzz/configuration.dict lacks: " << word;
  }
}

// The documented defaults are those a run has: writing them all down changes nothing.
TEST(ConfigKeys, HaveTheDefaultsTheyClaim) {
  const TemporaryDirectory folder;
  const std::filesystem::path file =
      folder.write("NAME.yaml", "model: {path: m}\ndata: {train: d, sequence_length: 8}\n");
  std::vector<std::string> words;
  for (const ConfigKey& key : config_keys()) {
    if (!key.required()) words.push_back(std::string(key.name) + "=" + std::string(key.fallback));
  }
  const Settings a = load_settings(file, {});
  const Settings b = load_settings(file, words);
  EXPECT_EQ(a.model.init, b.model.init);
  EXPECT_EQ(a.model.seed, b.model.seed);
  EXPECT_EQ(a.model.dtype, b.model.dtype);
  EXPECT_EQ(a.data.packing, b.data.packing);
  EXPECT_EQ(a.data.shuffle, b.data.shuffle);
  EXPECT_EQ(a.data.seed, b.data.seed);
  EXPECT_EQ(a.data.pad_token_id, b.data.pad_token_id);
  EXPECT_EQ(a.attention.sliding_window, b.attention.sliding_window);
  EXPECT_EQ(a.parallel.context_parallel_size, b.parallel.context_parallel_size);
  EXPECT_EQ(a.parallel.data_parallel_size, b.parallel.data_parallel_size);
  EXPECT_EQ(a.parallel.layout, b.parallel.layout);
  EXPECT_EQ(a.optimizer.learning_rate, b.optimizer.learning_rate);
  EXPECT_EQ(a.optimizer.beta1, b.optimizer.beta1);
  EXPECT_EQ(a.optimizer.beta2, b.optimizer.beta2);
  EXPECT_EQ(a.optimizer.eps, b.optimizer.eps);
  EXPECT_EQ(a.optimizer.weight_decay, b.optimizer.weight_decay);
  EXPECT_EQ(a.optimizer.max_grad_norm, b.optimizer.max_grad_norm);
  EXPECT_EQ(a.optimizer.schedule, b.optimizer.schedule);
  EXPECT_EQ(a.optimizer.warmup_steps, b.optimizer.warmup_steps);
  EXPECT_EQ(a.optimizer.min_learning_rate, b.optimizer.min_learning_rate);
  EXPECT_EQ(a.train.steps, b.train.steps);
  EXPECT_EQ(a.train.global_batch_size, b.train.global_batch_size);
  EXPECT_EQ(a.train.micro_batch_size, b.train.micro_batch_size);
  EXPECT_EQ(a.output.directory, b.output.directory);
  EXPECT_EQ(a.output.save_model, b.output.save_model);
  EXPECT_EQ(a.output.max_shard_size, b.output.max_shard_size);
  EXPECT_EQ(a.debug.save_gradients, b.debug.save_gradients);
  EXPECT_EQ(a.debug.poison, b.debug.poison);
  EXPECT_EQ(a.runtime.device, b.runtime.device);
  EXPECT_EQ(a.runtime.threads, b.runtime.threads);
}

}  // namespace
}  // namespace annulus
