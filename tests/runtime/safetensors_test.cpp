#include "runtime/files/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "runtime/files/safetensors_header.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

// A file of this header and these bytes, whatever they say.
std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + data;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<float> values_of(const SafetensorsReader& reader, const std::string& name) {
  const StoredTensor& tensor = reader.tensor(name);
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  reader.read(tensor, 0, values);
  return values;
}

// Three tensors, stored in another order than that of their names or of the header.
std::string good_header() {
  return R"({"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
         R"("__metadata__":{"format":"pt","note":"\u00e9"},)"
         R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
         R"("c":{"dtype":"F16","shape":[],"data_offsets":[22,24]}}  )";
}

std::string good_data() {
  return raw<float>({1, -2, 0.5F, 3e38F}) + raw<uint16_t>({0x3f80, 0xc000, 0x7f80}) + raw<uint16_t>({0x3c00});
}

std::string reason_to_refuse(const std::string& file) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.write("bad.safetensors", file);
  const std::string message = message_of<DataError>([&] { SafetensorsReader reader(path); });
  expect_says(message, {"bad.safetensors"});
  return message;
}

TEST(SafetensorsReader, ReadsTensorsListedInAnyOrder) {
  const TemporaryDirectory folder;
  const SafetensorsReader reader(folder.write("x.safetensors", file_of(good_header(), good_data())));
  EXPECT_EQ(reader.tensors().size(), 3U);
  EXPECT_EQ(reader.tensor("a").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(reader.tensor("c").shape.empty());
  EXPECT_EQ(values_of(reader, "a"), (std::vector<float>{1, -2, 0.5F, 3e38F}));
  EXPECT_EQ(values_of(reader, "b"), (std::vector<float>{1, -2, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(values_of(reader, "c"), (std::vector<float>{1}));
}

TEST(SafetensorsReader, ReadsPartsOfATensor) {
  const TemporaryDirectory folder;
  const SafetensorsReader reader(folder.write("x.safetensors", file_of(good_header(), good_data())));
  std::vector<float> part(2);
  reader.read(reader.tensor("a"), 1, part);
  EXPECT_EQ(part, (std::vector<float>{-2, 0.5F}));
  reader.read(reader.tensor("b"), 0, part);
  EXPECT_EQ(part, (std::vector<float>{1, -2}));
  reader.read(reader.tensor("b"), 3, {});
  EXPECT_THROW(reader.read(reader.tensor("b"), 2, part), InternalError);
}

TEST(SafetensorsReader, NamesTheFileThatLacksATensor) {
  const TemporaryDirectory folder;
  const SafetensorsReader reader(folder.write("x.safetensors", file_of(good_header(), good_data())));
  expect_says(message_of<DataError>([&] { (void)reader.tensor("absent"); }), {"x.safetensors", "'absent'"});
}

// Every value of 16 bits, against the definitions by ldexp. Enough elements for the reader to need more than one piece.
TEST(SafetensorsReader, WidensEveryFloat16AndBfloat16Exactly) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const TemporaryDirectory folder;
  const SafetensorsReader reader(folder.write(
      "x.safetensors", file_of(R"({"half":{"dtype":"F16","shape":[256,256],"data_offsets":[0,131072]},)"
                               R"("brain":{"dtype":"BF16","shape":[65536],"data_offsets":[131072,262144]}})",
                               raw(all) + raw(all))));
  const auto expect_exact = [&](const std::string& name, int mantissa_bits, int exponent_bias) {
    const std::vector<float> values = values_of(reader, name);
    const int exponent_mask = (1 << (15 - mantissa_bits)) - 1;
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const float value = values[static_cast<size_t>(bits)];
      const int exponent = bits >> mantissa_bits & exponent_mask;
      const int mantissa = bits & ((1 << mantissa_bits) - 1);
      ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << name << ' ' << bits;
      if (exponent == exponent_mask) {
        ASSERT_TRUE(mantissa == 0 ? std::isinf(value) : std::isnan(value)) << name << ' ' << bits;
        continue;
      }
      const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      const double expected = std::ldexp(significand, std::max(exponent, 1) - exponent_bias - mantissa_bits);
      ASSERT_EQ(std::abs(value), expected) << name << ' ' << bits;
    }
  };
  expect_exact("half", 10, 15);
  expect_exact("brain", 7, 127);
}

TEST(SafetensorsReader, AcceptsZeroDimensionsAndNoTensors) {
  const TemporaryDirectory folder;
  const SafetensorsReader empty(folder.write("empty.safetensors", file_of("{}", "")));
  EXPECT_TRUE(empty.tensors().empty());
  const SafetensorsReader zero(
      folder.write("zero.safetensors", file_of(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                               R"("a":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
                                               R"("c":{"dtype":"F16","shape":[5,0],"data_offsets":[0,0]}})",
                                               raw<float>({4}))));
  EXPECT_EQ(zero.tensor("a").elements(), 0);
  EXPECT_EQ(values_of(zero, "b"), (std::vector<float>{4}));
}

TEST(SafetensorsReader, RefusesHeadersOfImpossibleLength) {
  expect_says(reason_to_refuse("1234567"), {"7 bytes are too few"});
  std::string file = file_of("{}", "");
  const auto with_length = [&](uint64_t length) {
    std::memcpy(file.data(), &length, sizeof length);
    return file;
  };
  expect_says(reason_to_refuse(with_length(uint64_t{1} << 60)), {"1152921504606846976 bytes long", "100000000"});
  expect_says(reason_to_refuse(with_length(std::numeric_limits<uint64_t>::max())), {"18446744073709551615 bytes long"});
  expect_says(reason_to_refuse(with_length(100'000'001)), {"100000001 bytes long"});
  expect_says(reason_to_refuse(with_length(3)), {"would end at byte 11 of 10", "cut off"});
  expect_says(reason_to_refuse(with_length(0)), {"does not begin with '{'"});
}

TEST(SafetensorsReader, RefusesHeadersThatAreNotJson) {
  expect_says(reason_to_refuse(file_of("{", "")), {"not valid JSON"});
  expect_says(reason_to_refuse(file_of("{} {}", "")), {"not valid JSON"});
  expect_says(reason_to_refuse(file_of("{\"\xff\":1}", "")), {"not valid JSON", "UTF-8"});
  expect_says(reason_to_refuse(file_of(std::string("{}\0{", 4), "")), {"not valid JSON", "byte 2 is zero"});
  expect_says(reason_to_refuse(file_of(" {}", "")), {"does not begin with '{'"});
  expect_says(reason_to_refuse(file_of("[]", "")), {"does not begin with '{'"});
}

TEST(SafetensorsReader, RefusesDeepNestingWithoutRunningOutOfStack) {
  const std::string deep(10'000'000, '[');
  expect_says(reason_to_refuse(file_of("{\"a\":" + deep, "")), {"tensor 'a'", "an array, not an object"});
  expect_says(reason_to_refuse(file_of(R"({"a":{"shape":)" + deep, "")), {"tensor 'a'", "'shape' holds an array"});
}

// One entry "a" of 4 bytes, refused for what it says.
TEST(SafetensorsReader, RefusesMalformedEntries) {
  const auto reason = [](const std::string& entry) {
    return reason_to_refuse(file_of("{\"a\":" + entry + "}", "1234"));
  };
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  expect_says(reason("5"), {"tensor 'a'", "5, not an object"});
  expect_says(reason("null"), {"tensor 'a'", "null, not an object"});
  expect_says(reason("{}"), {"tensor 'a'", "dtype, shape and data_offsets"});
  expect_says(reason(R"({"dtype":"F32","shape":[1]})"), {"keys dtype, shape, not"});
  expect_says(reason(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"), {"1 cannot be the value of 'x'"});
  expect_says(reason(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})"), {"'dtype' appears twice"});
  expect_says(reason(entry("\"I64\"", "[1]", "[0,4]")), {"tensor 'a'", "I64 is not F32, BF16 or F16"});
  expect_says(reason(entry("4", "[1]", "[0,4]")), {"4 cannot be the value of 'dtype'"});
  expect_says(reason(entry("\"F32\"", "1", "[0,4]")), {"1 cannot be the value of 'shape'"});
  expect_says(reason(entry("\"F32\"", "{}", "[0,4]")), {"an object cannot be the value of 'shape'"});
  expect_says(reason(entry("\"F32\"", "[-1]", "[0,4]")), {"'shape' holds -1"});
  expect_says(reason(entry("\"F32\"", "[1.0]", "[0,4]")), {"'shape' holds 1.0"});
  expect_says(reason(entry("\"F32\"", "[18446744073709551615]", "[0,4]")), {"'shape' holds 18446744073709551615"});
  expect_says(reason(entry("\"F32\"", "[\"1\"]", "[0,4]")), {"'shape' holds a string"});
  expect_says(reason(entry("\"F32\"", "[1]", "[0,4,4]")), {"data_offsets [0, 4, 4]"});
  expect_says(reason(entry("\"F32\"", "[1]", "[4]")), {"data_offsets [4]"});
  expect_says(reason(entry("\"F32\"", "[1]", "[4,0]")), {"data_offsets [4, 0]"});
  expect_says(reason(entry("\"F32\"", "[1]", "[0,true]")), {"'data_offsets' holds true"});
}

TEST(SafetensorsReader, RefusesShapesThatDoNotTakeTheirBytes) {
  const auto reason = [](const std::string& dtype, const std::string& shape) {
    return reason_to_refuse(
        file_of("{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[0,4]}}", "1234"));
  };
  expect_says(reason("F32", "[2]"), {"tensor 'a'", "shape [2] of F32 does not take the 4 bytes"});
  expect_says(reason("BF16", "[1]"), {"shape [1] of BF16"});
  expect_says(reason("F32", "[0]"), {"shape [0] of F32"});
  // 2^62 + 1 elements of 4 bytes are 4 bytes in 64-bit arithmetic that wraps.
  expect_says(reason("F32", "[4611686018427387905]"), {"shape [4611686018427387905] of F32"});
  expect_says(reason("F16", "[4294967296,4294967296,2]"), {"shape [4294967296, 4294967296, 2] of F16"});
}

TEST(SafetensorsReader, RefusesBytesThatDoNotCoverTheData) {
  const auto reason = [](const std::string& a, const std::string& b, size_t bytes) {
    return reason_to_refuse(file_of("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + b +
                                        "},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" + a + "}}",
                                    std::string(bytes, '\0')));
  };
  expect_says(reason("[0,8]", "[4,8]", 8), {"tensor 'b'", "begin at byte 4", "ends at 8", "overlap"});
  expect_says(reason("[0,8]", "[12,16]", 16), {"tensor 'b'", "begin at byte 12", "ends at 8", "gap"});
  expect_says(reason("[4,12]", "[12,16]", 16), {"tensor 'a'", "begin at byte 4", "ends at 0", "gap"});
  expect_says(reason("[0,8]", "[8,12]", 11), {"take 12 bytes", "holds 11", "cut off"});
  expect_says(reason("[0,8]", "[8,12]", 13), {"take 12 bytes", "holds 13", "trail"});
  expect_says(reason("[0,8]", "[9223372036854775803,9223372036854775807]", 12), {"tensor 'b'", "gap"});
}

TEST(SafetensorsReader, RefusesNamesThatAppearTwice) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":)";
  expect_says(reason_to_refuse(file_of("{\"a\":" + entry + "[0,4]},\"a\":" + entry + "[4,8]}}", "12345678")),
              {"the name 'a' appears twice"});
  expect_says(reason_to_refuse(file_of(R"({"__metadata__":{},"__metadata__":{}})", "")),
              {"'__metadata__' appears twice"});
}

TEST(SafetensorsReader, RefusesMetadataOtherThanStrings) {
  expect_says(reason_to_refuse(file_of(R"({"__metadata__":{"a":1}})", "")), {"value of 'a' is 1, not a string"});
  expect_says(reason_to_refuse(file_of(R"({"__metadata__":{"a":{}}})", "")), {"value of 'a' is an object"});
  expect_says(reason_to_refuse(file_of(R"({"__metadata__":"a"})", "")), {"a string, not an object"});
}

TEST(SafetensorsReader, RefusesAFileCutAtAnyByte) {
  const TemporaryDirectory folder;
  const std::string whole = file_of(good_header(), good_data());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::filesystem::path path = folder.write("cut.safetensors", whole.substr(0, bytes));
    EXPECT_THROW(SafetensorsReader reader(path), DataError) << "cut at " << bytes;
    std::filesystem::remove(path);  // writing over a file would wait for the disk
  }
}

// A flipped byte may leave another valid file (a name, a dtype of the same size); whatever opens must be readable in
// full.
TEST(SafetensorsReader, RefusesOrReadsAFileWithAnyHeaderByteFlipped) {
  const TemporaryDirectory folder;
  const std::string whole = file_of(good_header(), good_data());
  int refused = 0;
  for (size_t at = 0; at < whole.size() - good_data().size(); ++at) {
    for (const int flip : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ flip);
      const std::filesystem::path path = folder.write("flip.safetensors", flipped);
      try {
        const SafetensorsReader reader(path);
        for (const auto& [name, tensor] : reader.tensors()) values_of(reader, name);
      } catch (const DataError&) {
        ++refused;
      }
      std::filesystem::remove(path);
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(SafetensorsWriter, WritesWhatTheFormatSays) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "x.safetensors";
  SafetensorsWriter writer(path, {{"z", StoredDType::bf16, {1, 3}, 0}, {"a\"\n", StoredDType::f32, {}, 0}});
  const std::string data = raw<uint16_t>({1, 2, 3}) + raw<float>({5});
  writer.append(std::as_bytes(std::span(data)).first(3));
  writer.append(std::as_bytes(std::span(data)).subspan(3));
  writer.commit();
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"z":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]},)"
      R"("a\"\n":{"dtype":"F32","shape":[],"data_offsets":[6,10]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_NE(header.size() % 8, 0U);
  EXPECT_EQ(bytes_of(path), file_of(padded, data));
}

TEST(SafetensorsWriter, WritesAgainByteForByteWhatItsReaderRead) {
  const TemporaryDirectory folder;
  std::vector<StoredTensor> tensors = {{"model.norm.weight", StoredDType::f32, {5}, 0},
                                       {"model.embed_tokens.weight", StoredDType::f32, {3, 5}, 0},
                                       {"\u00e9", StoredDType::f32, {0}, 0}};
  std::vector<float> values;
  for (int i = 0; i < 20; ++i) values.push_back(std::ldexp(1.0F / static_cast<float>(i + 1), 3 * i - 30));
  SafetensorsWriter writer(folder / "first", tensors);
  writer.append(std::as_bytes(std::span(values)));
  writer.commit();

  const SafetensorsReader reader(folder / "first");
  SafetensorsWriter again(folder / "second", tensors);
  for (const StoredTensor& tensor : tensors) {
    EXPECT_EQ(reader.tensor(tensor.name).shape, tensor.shape);
    const std::vector<float> copy = values_of(reader, tensor.name);
    again.append(std::as_bytes(std::span(copy)));
  }
  again.commit();
  EXPECT_EQ(bytes_of(folder / "first"), bytes_of(folder / "second"));
}

TEST(SafetensorsWriter, LeavesNoFileWhereBytesAreMissingOrTooMany) {
  const TemporaryDirectory folder;
  const std::vector<float> values(3);
  {
    SafetensorsWriter writer(folder / "x", {{"a", StoredDType::f32, {2}, 0}});
    writer.append(std::as_bytes(std::span(values).first(1)));
    EXPECT_THROW(writer.commit(), InternalError);
    EXPECT_THROW(writer.append(std::as_bytes(std::span(values).first(2))), InternalError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, RefusesTwoTensorsOfOneName) {
  const TemporaryDirectory folder;
  EXPECT_THROW(SafetensorsWriter(folder / "x", {{"a", StoredDType::f32, {2}, 0}, {"a", StoredDType::f32, {2}, 0}}),
               InternalError);
}

}  // namespace
}  // namespace annulus
