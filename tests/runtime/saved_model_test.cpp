// Models from directories into shards and back.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/device.h"
#include "kernels/error.h"
#include "parallel/transports.h"
#include "runtime/checkpoint.h"
#include "runtime/files/model_companions.h"
#include "runtime/files/safetensors_directory_writer.h"
#include "runtime/model/units.h"
#include "tests/runtime/file_size_limit.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

constexpr const char* index_name = "model.safetensors.index.json";

// Loads the model of one directory on `ranks` ranks and saves it in another.
void copy_model(const SavedModel& saved, int ranks) {
  run_as_threads(ranks, [&](Transport& transport) {
    const ModelConfig model = ModelConfig::read(saved.source);
    const auto device = make_cpu_device({.threads = 1, .poison = true});
    const Stream stream = device->compute_stream();
    ShardedParameters parameters(*device, transport, saved.dtype, qwen3_units(model), {}, stream);
    load_weights(open_weights(saved.source, model), parameters, *device, stream);
    save_model(saved, parameters, *device, transport, stream);
  });
}

HostTensors weights_in(const fs::path& directory) {
  const SafetensorsDirectory weights(directory);
  HostTensors tensors;
  for (const auto& [name, stored] : weights.tensors()) {
    HostTensor& tensor = tensors[name];
    tensor = {stored.shape, std::vector<float>(static_cast<size_t>(stored.elements()))};
    weights.read(stored, 0, tensor.values);
  }
  return tensors;
}

void expect_equal(const HostTensors& a, const HostTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : b) {
    ASSERT_TRUE(a.contains(name)) << name;
    EXPECT_EQ(a.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(a.at(name).values, tensor.values) << name;
  }
}

// Every file of the one directory is in the other, byte for byte, and the other way round.
void expect_same_files(const fs::path& a, const fs::path& b) {
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    for (const auto& entry : fs::directory_iterator(one)) {
      const fs::path name = entry.path().filename();
      EXPECT_TRUE(fs::exists(other / name)) << name;
      EXPECT_TRUE(bytes_of(one / name) == bytes_of(other / name)) << name;
    }
  }
}

// The nearest bfloat16, of two as near the even one: without bits, by scaling to an integer of 8 bits.
float nearest_bfloat16(float value) {
  int exponent = 0;
  const double mantissa = std::frexp(double{value}, &exponent);  // 0.5 to below 1
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8));
}

class SavedModels : public testing::Test {
 protected:
  SavedModels() { write_model(source(), {.tied = false}, 3); }

  [[nodiscard]] fs::path source() const { return folder_ / "source"; }
  [[nodiscard]] SavedModel to(const char* name, int64_t max_shard_bytes, DType dtype = DType::float32) const {
    return {.directory = folder_ / name, .source = source(), .dtype = dtype, .max_shard_bytes = max_shard_bytes};
  }
  void write_config(const std::string& text) const { std::ofstream(source() / "config.json") << text; }

  TemporaryDirectory folder_;
};

TEST_F(SavedModels, AreWhatWasLoadedInShardsOfAnySizeOnAnyRanks) {
  const HostTensors weights = weights_in(source());
  for (const int64_t max_shard_bytes : {1, 10'000, 30'000}) {
    copy_model(to("1", max_shard_bytes), 1);
    expect_equal(weights_in(folder_ / "1"), weights);
    EXPECT_TRUE(fs::exists(folder_ / "1" / index_name));
    for (const int ranks : {2, 3}) {
      const std::string name = std::to_string(ranks);
      copy_model(to(name.c_str(), max_shard_bytes), ranks);
      expect_same_files(folder_ / name, folder_ / "1");
    }
  }
}

TEST_F(SavedModels, ComeBackByteForByteFromTheirShards) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    copy_model(to("first", 20'000, dtype), 2);
    SavedModel again = to("again", 20'000, dtype);
    again.source = folder_ / "first";
    copy_model(again, 3);
    expect_same_files(folder_ / "again", folder_ / "first");
  }
}

TEST_F(SavedModels, AreOneFileUpToTheLimit) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : weights_in(source())) bytes += 4 * std::ssize(tensor.values);
  copy_model(to("saved", bytes - 1), 2);
  EXPECT_TRUE(fs::exists(folder_ / "saved" / index_name));
  EXPECT_FALSE(fs::exists(folder_ / "saved" / "model.safetensors"));
  copy_model(to("saved", bytes), 2);
  EXPECT_FALSE(fs::exists(folder_ / "saved" / index_name));
  expect_equal(read_tensors(folder_ / "saved" / "model.safetensors"), weights_in(source()));
}

TEST_F(SavedModels, HoldWeightsRoundedOnceInBfloat16) {
  HostTensors weights = weights_in(source());
  for (auto& [name, tensor] : weights) {
    for (float& value : tensor.values) value = nearest_bfloat16(value);
  }
  copy_model(to("saved", 10'000, DType::bfloat16), 3);
  expect_equal(weights_in(folder_ / "saved"), weights);
}

// Shards of three dtypes, whose values every one of them holds exactly.
TEST_F(SavedModels, LoadFromShardsOfEveryDType) {
  const HostTensors weights = weights_in(source());
  HostTensors exact;
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : weights) {
    constexpr std::array dtypes = {StoredDType::f32, StoredDType::bf16, StoredDType::f16};
    stored.push_back({.name = name, .dtype = dtypes[stored.size() % 3], .shape = tensor.shape});
    exact[name] = tensor;
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      exact[name].values[i] = static_cast<float>((i % 2 == 0 ? 1.0 : -1.0) * std::ldexp(128.0 + double(i % 128), -10));
    }
  }
  fs::remove(source() / "model.safetensors");
  SafetensorsDirectoryWriter writer(source(), stored, 5'000);
  for (const StoredTensor& tensor : stored) {
    for (const float value : exact[tensor.name].values) {
      const auto bits = std::bit_cast<uint32_t>(value);
      // All are normal in float16: its exponent is 112 less and its mantissa 13 bits shorter.
      const uint32_t narrow_bits = tensor.dtype == StoredDType::bf16
                                       ? bits >> 16
                                       : (bits >> 16 & 0x8000) | (((bits & 0x7FFFFFFF) >> 13) - (112U << 10));
      const auto half = static_cast<uint16_t>(narrow_bits);
      writer.append(tensor.dtype == StoredDType::f32 ? std::as_bytes(std::span(&value, 1))
                                                     : std::as_bytes(std::span(&half, 1)));
    }
  }
  writer.commit();
  for (const int ranks : {1, 2, 3}) {
    copy_model(to("saved", 10'000), ranks);
    expect_equal(weights_in(folder_ / "saved"), exact);
  }
}

TEST_F(SavedModels, RefuseShardsOfAnotherModel) {
  const auto refusal = [&] {
    return message_of<DataError>([&] { open_weights(source(), ModelConfig::read(source())); });
  };
  const HostTensors right = weights_in(source());
  HostTensors weights = right;
  weights.erase("model.norm.weight");
  write_tensors(source() / "model.safetensors", weights);
  expect_says(refusal(), {source().string(), "no tensor 'model.norm.weight'"});
  weights = right;
  weights["more"] = weights["model.norm.weight"];
  write_tensors(source() / "model.safetensors", weights);
  expect_says(refusal(), {"model.safetensors': tensor 'more' is not part of the model"});
  weights = right;
  weights["model.norm.weight"].shape = {4, 8};
  write_tensors(source() / "model.safetensors", weights);
  expect_says(refusal(), {"model.safetensors': tensor 'model.norm.weight' has shape (4, 8)", "asks for (32)"});
}

TEST_F(SavedModels, HaveTheConfigurationOfTheirSourceByteForByte) {
  const std::string config = bytes_of(source() / "config.json");
  write_config(" " + config + "\r\n");
  copy_model(to("saved", 10'000), 2);
  EXPECT_EQ(bytes_of(folder_ / "saved" / "config.json"), " " + config + "\r\n");
}

TEST_F(SavedModels, SayWhichDTypeTheyHoldWhereTheirSourceHasAnother) {
  const std::string config = bytes_of(source() / "config.json");
  copy_model(to("saved", 10'000, DType::bfloat16), 2);
  std::string expected = config;
  const std::string before = R"("torch_dtype": "float32")";
  expected.replace(expected.find(before), before.size(), R"("torch_dtype": "bfloat16")");
  EXPECT_EQ(bytes_of(folder_ / "saved" / "config.json"), expected);
}

TEST(WithDType, ReplacesNothingElseAndKeepsTheOrder) {
  const TemporaryDirectory folder;
  const auto text = [&](const std::string& config) {
    return with_dtype(folder.write("config.json", config), "float32");
  };
  EXPECT_EQ(text(R"({"z": 1e-06, "dtype": "bfloat16", "a": {"dtype": "float16"}, "m": [1, "é"]})"),
            R"({
  "z": 1e-06,
  "dtype": "float32",
  "a": {
    "dtype": "float16"
  },
  "m": [
    1,
    "é"
  ]
}
)");
  EXPECT_EQ(text(R"({"torch_dtype":"float16"})"), "{\n  \"torch_dtype\": \"float32\"\n}\n");
  for (const char* const agreeing : {R"({"dtype":"float32"})", R"({"torch_dtype":null})", R"({"a":1})"}) {
    EXPECT_EQ(text(agreeing), agreeing);
  }
  expect_says(message_of<DataError>([&] { text("{"); }), {"config.json' is not valid JSON"});
}

TEST_F(SavedModels, StayAsTheyWereOnAFullDisk) {
  copy_model(to("saved", 20'000), 1);
  copy_model(to("kept", 20'000), 1);
  write_model(source(), {.tied = false}, 4);
  for (const int ranks : {1, 2, 3}) {
    const FileSizeLimit limit(15'000);
    const std::string message = message_of<MemoryError>([&] { copy_model(to("saved", 20'000), ranks); });
    expect_says(message, {"saved/model-0000", "File too large", "ulimit -f"});
  }
  expect_same_files(folder_ / "saved", folder_ / "kept");
}

TEST_F(SavedModels, NameAPlaceThatCannotBeWritten) {
  folder_.write("file", "");
  expect_says(message_of<EnvironmentError>([&] { copy_model(to("file", 20'000), 2); }), {"file'", "cannot write"});
}

}  // namespace
}  // namespace annulus
