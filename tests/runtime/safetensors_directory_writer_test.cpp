#include "runtime/files/safetensors_directory_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "runtime/files/safetensors_directory.h"
#include "tests/runtime/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using Shards = std::vector<std::vector<size_t>>;

StoredTensor vector_of(const std::string& name, int64_t elements) {
  return {.name = name, .dtype = StoredDType::f32, .shape = {elements}};
}

// Tensors of 4 bytes an element, named a, b, c, ...
std::vector<StoredTensor> tensors_of(const std::vector<int64_t>& elements) {
  std::vector<StoredTensor> tensors;
  for (const int64_t count : elements) {
    tensors.push_back(vector_of(std::string(1, static_cast<char>('a' + tensors.size())), count));
  }
  return tensors;
}

// Each tensor's elements are `value`, plus one from tensor to tensor, and come in pieces of at most two.
void append_all(SafetensorsDirectoryWriter& writer, const std::vector<int64_t>& elements, float value) {
  for (const int64_t count : elements) {
    const std::vector<float> values(static_cast<size_t>(count), value++);
    for (int64_t done = 0; done < count; done += 2) {
      writer.append(std::as_bytes(std::span(values)
                                      .subspan(static_cast<size_t>(done))
                                      .first(static_cast<size_t>(std::min<int64_t>(2, count - done)))));
    }
  }
}

const std::vector<int64_t> three = {3, 3, 2};  // 32 bytes

void save(const fs::path& directory, int64_t max_bytes, float value, const std::vector<int64_t>& elements = three) {
  SafetensorsDirectoryWriter writer(directory, tensors_of(elements), max_bytes);
  append_all(writer, elements, value);
  writer.commit();
}

std::set<std::string> files_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

// The first value of each tensor, as a reader finds it.
std::map<std::string, float> values_in(const fs::path& directory) {
  const SafetensorsDirectory weights(directory);
  std::map<std::string, float> values;
  for (const auto& [name, tensor] : weights.tensors()) weights.read(tensor, 0, {&values[name], 1});
  return values;
}

const std::map<std::string, float> old_values = {{"a", 10}, {"b", 11}, {"c", 12}};
const std::map<std::string, float> new_values = {{"a", 20}, {"b", 21}, {"c", 22}};
const std::string index_name = "model.safetensors.index.json";
const std::set<std::string> single = {"model.safetensors"};
const std::set<std::string> two_shards = {index_name, "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors"};
const std::set<std::string> three_shards = {index_name, "model-00001-of-00003.safetensors",
                                            "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"};

TEST(SplitIntoShards, FillsThemInOrderUpToTheLimit) {
  // The example in the description of split_state_dict_into_shards_factory.
  EXPECT_EQ(split_into_shards(tensors_of({6, 6, 2, 6, 2, 2}), 40), (Shards{{0}, {1, 2}, {3, 4, 5}}));
  EXPECT_EQ(split_into_shards(tensors_of({1, 1, 1}), 12), (Shards{{0, 1, 2}}));
  EXPECT_EQ(split_into_shards(tensors_of({1, 1, 1}), 11), (Shards{{0, 1}, {2}}));
  EXPECT_EQ(split_into_shards(tensors_of({2, 2, 1, 3}), 12), (Shards{{0}, {1, 2}, {3}}));
  EXPECT_EQ(split_into_shards(tensors_of({1, 1}), 1), (Shards{{0}, {1}}));
  EXPECT_EQ(split_into_shards(tensors_of({4}), 1), (Shards{{0}}));
}

TEST(SplitIntoShards, GivesATensorAboveTheLimitOneOfItsOwnAndFillsTheOtherOn) {
  EXPECT_EQ(split_into_shards(tensors_of({1, 9, 1, 1, 1}), 12), (Shards{{1}, {0, 2, 3}, {4}}));
  EXPECT_EQ(split_into_shards(tensors_of({9, 1, 9}), 12), (Shards{{0}, {2}, {1}}));
}

TEST(SafetensorsDirectoryWriter, WritesOneFileWhereAllFits) {
  const TemporaryDirectory folder;
  save(folder.path(), 32, 20);
  EXPECT_EQ(files_in(folder.path()), single);
  EXPECT_EQ(values_in(folder.path()), new_values);
}

TEST(SafetensorsDirectoryWriter, WritesShardsWithAnIndexAboveTheLimit) {
  const TemporaryDirectory folder;
  save(folder.path(), 31, 20);
  EXPECT_EQ(files_in(folder.path()), two_shards);
  EXPECT_EQ(values_in(folder.path()), new_values);
  EXPECT_EQ(bytes_of(folder / index_name),
            "{\n"
            "  \"metadata\": {\n"
            "    \"total_size\": 32\n"
            "  },\n"
            "  \"weight_map\": {\n"
            "    \"a\": \"model-00001-of-00002.safetensors\",\n"
            "    \"b\": \"model-00001-of-00002.safetensors\",\n"
            "    \"c\": \"model-00002-of-00002.safetensors\"\n"
            "  }\n"
            "}\n");
}

TEST(SafetensorsDirectoryWriter, SaysInEveryShardWhatTransformersAsksFor) {
  const TemporaryDirectory folder;
  save(folder.path(), 12, 20);
  EXPECT_EQ(files_in(folder.path()), three_shards);
  for (const std::string& name : three_shards) {
    if (name == index_name) continue;
    const std::string text = bytes_of(folder / name);
    const auto header = nlohmann::json::parse(text.substr(8, static_cast<unsigned char>(text[0])));
    EXPECT_EQ(header.at("__metadata__"), (nlohmann::json{{"format", "pt"}})) << name;
  }
}

TEST(SafetensorsDirectoryWriter, WritesTensorsAboveTheLimitBetweenOthers) {
  const TemporaryDirectory folder;
  save(folder.path(), 16, 20, {1, 9, 1, 5, 3});
  EXPECT_EQ(values_in(folder.path()),
            (std::map<std::string, float>{{"a", 20}, {"b", 21}, {"c", 22}, {"d", 23}, {"e", 24}}));
  const auto index = nlohmann::json::parse(bytes_of(folder / index_name));
  EXPECT_EQ(index["metadata"]["total_size"], 76);
  EXPECT_EQ(index["weight_map"]["b"], "model-00001-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["d"], "model-00002-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["c"], index["weight_map"]["a"]);
}

TEST(SafetensorsDirectoryWriter, LeavesNothingOfAnEarlierSave) {
  for (const int64_t before : {32, 31, 12}) {
    for (const int64_t after : {32, 31, 12}) {
      const TemporaryDirectory folder;
      save(folder.path(), before, 10);
      folder.write("tokenizer.json", "{}");
      folder.write("model-00007-of-00009.safetensors.partial", "what a crash left");
      folder.write("model-of-another.safetensors", "no shard");
      save(folder.path(), after, 20);
      std::set<std::string> expected = after == 32 ? single : after == 31 ? two_shards : three_shards;
      expected.insert({"tokenizer.json", "model-of-another.safetensors"});
      EXPECT_EQ(files_in(folder.path()), expected) << before << " " << after;
      EXPECT_EQ(values_in(folder.path()), new_values) << before << " " << after;
    }
  }
}

TEST(SafetensorsDirectoryWriter, ChangesNothingBeforeItCommits) {
  for (const int64_t before : {32, 31}) {
    for (const int64_t after : {32, 31, 12}) {
      const TemporaryDirectory folder;
      save(folder.path(), before, 10);
      const std::set<std::string> files = files_in(folder.path());
      {
        SafetensorsDirectoryWriter writer(folder.path(), tensors_of(three), after);
        append_all(writer, three, 20);
        EXPECT_EQ(values_in(folder.path()), old_values);
      }
      EXPECT_EQ(files_in(folder.path()), files);
      EXPECT_EQ(values_in(folder.path()), old_values);
    }
  }
}

// Wherever a commit stops, here at a shard that cannot take its name, readers find one save, whole, or none.
TEST(SafetensorsDirectoryWriter, NeverLeavesAMixture) {
  for (const int64_t before : {32, 31, 12}) {
    for (const char* const stop : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
      const TemporaryDirectory folder;
      save(folder.path(), before, 10);
      fs::remove(folder / stop);
      folder.write(std::string(stop) + "/in the way", "");
      EXPECT_THROW(save(folder.path(), 31, 20), EnvironmentError);
      if (before == 31) {
        expect_says(message_of<DataError>([&] { values_in(folder.path()); }), {"neither model.safetensors nor"});
      } else {
        EXPECT_EQ(values_in(folder.path()), old_values) << before;
      }
      for (const std::string& name : files_in(folder.path())) EXPECT_EQ(name.find(".partial"), std::string::npos);
    }
  }
}

TEST(SafetensorsDirectoryWriter, ChangesNothingOnAFullDisk) {
  for (const int64_t after : {4000, 1900}) {
    const TemporaryDirectory folder;
    save(folder.path(), 31, 10);
    {
      const FileSizeLimit limit(1500);
      const auto save_large = [&] { save(folder.path(), after, 20, {200, 200, 470}); };
      expect_says(message_of<MemoryError>(save_large),
                  {folder.path().string(), after == 4000 ? "model.safetensors'" : "model-00001-of-00002.safetensors'"});
    }
    EXPECT_EQ(files_in(folder.path()), two_shards);
    EXPECT_EQ(values_in(folder.path()), old_values);
  }
}

// Files wait closed for their names.
TEST(SafetensorsDirectoryWriter, HoldsFewFilesOpen) {
  const TemporaryDirectory folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{40, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<StoredTensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(vector_of(std::to_string(i), 1));
  SafetensorsDirectoryWriter writer(folder.path(), tensors, 1);
  append_all(writer, std::vector<int64_t>(100, 1), 0);
  writer.commit();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(values_in(folder.path()).at("99"), 99);
}

TEST(SafetensorsDirectoryWriter, KnowsHowManyBytesComeNext) {
  const TemporaryDirectory folder;
  SafetensorsDirectoryWriter writer(folder.path(), tensors_of({1, 3}), 100);
  const std::vector<float> values(4);
  EXPECT_THROW(writer.append(std::as_bytes(std::span(values))), InternalError);
  EXPECT_THROW(writer.commit(), InternalError);
}

}  // namespace
}  // namespace annulus
