#include "runtime/files/safetensors_directory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/error.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

// A file with one element for each name: 10·first, 10·first + 1, ...
void write_shard(const std::filesystem::path& path, const std::vector<std::string>& names, int first) {
  std::vector<StoredTensor> tensors;
  std::vector<float> values;
  for (const std::string& name : names) {
    tensors.push_back({name, StoredDType::f32, {1}, 0});
    values.push_back(static_cast<float>(10 * first + std::ssize(values)));
  }
  SafetensorsWriter writer(path, tensors);
  writer.append(std::as_bytes(std::span(values)));
  writer.commit();
}

float value_of(const SafetensorsDirectory& weights, const std::string& name) {
  float value = -1;
  weights.read(weights.tensor(name), 0, {&value, 1});
  return value;
}

// Shards "1" with a and c, "2" with b.
class IndexedDirectory : public testing::Test {
 protected:
  IndexedDirectory() {
    write_shard(folder_ / "1.safetensors", {"a", "c"}, 1);
    write_shard(folder_ / "2.safetensors", {"b"}, 2);
    write_index(R"({"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"})");
  }

  void write_index(const std::string& weight_map) {
    folder_.write("model.safetensors.index.json",
                  R"({"metadata": {"total_size": 12}, "weight_map": )" + weight_map + "}");
  }

  std::string reason_to_refuse() {
    return message_of<DataError>([&] { SafetensorsDirectory weights(folder_.path()); });
  }

  TemporaryDirectory folder_;
};

TEST_F(IndexedDirectory, ReadsAsOneFile) {
  const SafetensorsDirectory weights(folder_.path());
  EXPECT_EQ(weights.tensors().size(), 3U);
  EXPECT_EQ(value_of(weights, "a"), 10);
  EXPECT_EQ(value_of(weights, "b"), 20);
  EXPECT_EQ(value_of(weights, "c"), 11);
  expect_says(message_of<DataError>([&] { (void)weights.tensor("absent"); }), {folder_.path().string(), "'absent'"});
}

TEST_F(IndexedDirectory, NamesAShardThatIsMissing) {
  std::filesystem::remove(folder_ / "2.safetensors");
  expect_says(reason_to_refuse(), {"2.safetensors", "No such file"});
}

TEST_F(IndexedDirectory, NamesATensorThatItsShardLacks) {
  write_shard(folder_ / "1.safetensors", {"a"}, 1);
  expect_says(reason_to_refuse(), {"index.json", "tensor 'c' is in 1.safetensors", "does not hold it"});
}

TEST_F(IndexedDirectory, NamesATensorThatTheIndexLacksOrHasElsewhere) {
  write_index(R"({"a": "1.safetensors", "b": "2.safetensors"})");
  expect_says(reason_to_refuse(), {"1.safetensors' holds tensor 'c'", "does not list it"});
  write_index(R"({"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"})");
  expect_says(reason_to_refuse(), {"1.safetensors' holds tensor 'c'", "says it is in 2.safetensors"});
}

TEST_F(IndexedDirectory, IgnoresAStrayFile) {
  write_shard(folder_ / "3.safetensors", {"a", "d"}, 3);
  folder_.write("4.safetensors", "broken");
  const SafetensorsDirectory weights(folder_.path());
  EXPECT_EQ(weights.tensors().size(), 3U);
  EXPECT_EQ(value_of(weights, "a"), 10);
}

TEST_F(IndexedDirectory, PrefersASingleFileAsTransformersDoes) {
  write_shard(folder_ / "model.safetensors", {"a"}, 5);
  const SafetensorsDirectory weights(folder_.path());
  EXPECT_EQ(weights.tensors().size(), 1U);
  EXPECT_EQ(value_of(weights, "a"), 50);
}

TEST_F(IndexedDirectory, RefusesAnIndexThatIsNone) {
  write_index("[]");
  expect_says(reason_to_refuse(), {"index.json", "no object 'weight_map'"});
  write_index(R"({"a": 1})");
  expect_says(reason_to_refuse(), {"index.json", "tensor 'a' is not a string"});
  write_index("{");
  expect_says(reason_to_refuse(), {"index.json", "not valid JSON"});
  for (const char* const name : {"../1.safetensors", "/etc/passwd", "", "sub/1.safetensors"}) {
    write_index(std::string(R"({"a": ")") + name + "\"}");
    expect_says(reason_to_refuse(), {"tensor 'a'", "not the name of a file beside it"});
  }
}

TEST(SafetensorsDirectory, SaysWhatADirectoryWithoutWeightsLacks) {
  const TemporaryDirectory folder;
  expect_says(message_of<DataError>([&] { SafetensorsDirectory weights(folder.path()); }),
              {folder.path().string(), "neither model.safetensors nor model.safetensors.index.json"});
}

}  // namespace
}  // namespace annulus
