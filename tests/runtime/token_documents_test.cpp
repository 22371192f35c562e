// Token files of llm.c and of Megatron, made by hand byte by byte.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "runtime/data/documents.h"
#include "tests/runtime/document_parts.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;

constexpr int64_t qwen3_vocabulary = 151936;

template <class T>
std::string bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Writes a value over what is at `offset`, or makes the file longer.
template <class T>
void overwrite(const fs::path& path, int64_t offset, T value) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(offset);
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
  ASSERT_TRUE(file.flush());
}

std::string reason_to_refuse(const fs::path& path, int64_t vocabulary) {
  const std::string message = message_of<DataError>([&] { open_documents(path, vocabulary); });
  expect_says(message, {path.stem().string()});
  return message;
}

// Opens and reads all: whatever the bytes are, that gives documents or a DataError.
bool is_readable(const fs::path& path, int64_t vocabulary) {
  try {
    tokens_of(*open_documents(path, vocabulary));
    return true;
  } catch (const DataError&) {
    return false;
  }
}

std::string llmc_header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return bytes(header);
}

std::string llmc_uint16(const std::vector<uint16_t>& tokens) {
  return llmc_header(20240520, 1, static_cast<int32_t>(tokens.size())) + bytes(tokens);
}

std::string llmc_uint32(const std::vector<uint32_t>& tokens) {
  return llmc_header(20240801, 7, static_cast<int32_t>(tokens.size())) + bytes(tokens);
}

TEST(LlmcDocuments, AreTheTokensOfAFile) {
  const TemporaryDirectory folder;
  EXPECT_EQ(tokens_of(*open_documents(folder.write("a.bin", llmc_uint16({0, 50256, 65535, 1})), 65536)),
            (std::vector<Ids>{{0, 50256, 65535, 1}}));
  EXPECT_EQ(tokens_of(*open_documents(folder.write("b.bin", llmc_uint32({0, 151935, 70000})), qwen3_vocabulary)),
            (std::vector<Ids>{{0, 151935, 70000}}));
}

TEST(LlmcDocuments, AreReadInAnyParts) {
  const TemporaryDirectory folder;
  std::vector<uint16_t> tokens;
  for (int i = 0; i < 100'000; ++i) tokens.push_back(static_cast<uint16_t>(i * 7 % 50'000));
  const auto source = open_documents(folder.write("a.bin", llmc_uint16(tokens)), 50'000);
  const Part part = read(*source, 0, 1'234, 90'000);
  for (size_t i = 0; i < 90'000; ++i) ASSERT_EQ(part.tokens[i], tokens[i + 1'234]);
  EXPECT_EQ(part.labels, part.tokens);
  EXPECT_EQ(read(*source, 0, 99'999, 1).tokens, (Ids{tokens.back()}));
  EXPECT_THROW(read(*source, 0, 99'999, 2), InternalError);
}

// In the byte order of paths, whatever their formats; empty ones are skipped.
TEST(LlmcDocuments, OfAFolderAreOneAFile) {
  const TemporaryDirectory folder;
  folder.write("b.bin", llmc_uint32({5, 6}));
  folder.write("a/2.bin", llmc_uint16({3, 4}));
  folder.write("a/10.bin", llmc_uint16({1, 2, 3}));
  folder.write("a.bin", llmc_uint16({}));
  EXPECT_EQ(tokens_of(*open_documents(folder.path(), 10)), (std::vector<Ids>{{1, 2, 3}, {3, 4}, {5, 6}}));
}

TEST(LlmcDocuments, AreNotMixedWithOtherFiles) {
  const TemporaryDirectory folder;
  folder.write("a.bin", llmc_uint16({1, 2}));
  folder.write("b.txt", "text");
  expect_says(message_of<DataError>([&] { open_documents(folder.path(), 300); }),
              {folder.path().string(), "a.bin'", "b.txt'", "folder of their own"});
}

TEST(LlmcDocuments, HaveATokenAndAnAnswer) {
  const TemporaryDirectory folder;
  expect_says(reason_to_refuse(folder.write("a.bin", llmc_uint16({})), 10), {"no token"});
  expect_says(reason_to_refuse(folder.write("a.bin", llmc_uint16({1})), 10), {"nothing to learn"});
}

TEST(LlmcDocuments, RefuseAHeaderThatIsNone) {
  const TemporaryDirectory folder;
  const auto reason = [&](int32_t magic, int32_t version, int32_t tokens) {
    return reason_to_refuse(folder.write("a.bin", llmc_header(magic, version, tokens) + "12345678"), 100);
  };
  expect_says(reason(20240521, 1, 4), {"a.bin'", "begins with 20240521", "20240520", "no *.idx"});
  expect_says(reason(20240520, 2, 4), {"version is 2", "20240520", "only version 1"});
  expect_says(reason(20240801, 1, 2), {"version is 1", "20240801", "only version 7"});
  expect_says(reason(20240520, 1, 3), {"counts 3 uint16 tokens", "1030 bytes", "has 1032"});
  expect_says(reason(20240520, 1, 5), {"counts 5 uint16 tokens", "1034 bytes", "has 1032"});
  expect_says(reason(20240801, 7, 4), {"counts 4 uint32 tokens", "1040 bytes", "has 1032"});
  expect_says(reason(20240520, 1, -4), {"counts -4 uint16 tokens"});
  expect_says(reason(20240520, 1, 2147483647), {"counts 2147483647 uint16 tokens", "4294968318 bytes"});
}

TEST(LlmcDocuments, RefuseAFileCutAnywhere) {
  const TemporaryDirectory folder;
  const std::string whole = llmc_uint16({1, 2, 3});
  ASSERT_TRUE(is_readable(folder.write("a.bin", whole), 100));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(is_readable(folder.write("a.bin", whole.substr(0, size)), 100)) << size;
  }
  EXPECT_FALSE(is_readable(folder.write("a.bin", whole + '\0'), 100));
}

TEST(LlmcDocuments, NeedATypeThatCanNameTheVocabulary) {
  const TemporaryDirectory folder;
  const fs::path path = folder.write("a.bin", llmc_uint16({1, 2}));
  EXPECT_EQ(open_documents(path, 65536)->count(), 1);
  expect_says(reason_to_refuse(path, 65537), {"a.bin'", "uint16", "vocabulary of 65537", "another tokenizer"});
  expect_says(reason_to_refuse(path, qwen3_vocabulary), {"uint16", "151936"});
}

TEST(LlmcDocuments, NameFileAndOffsetOfATokenOutsideTheVocabularyWhenItIsRead) {
  const TemporaryDirectory folder;
  const auto message = [](const DocumentSource& source, int64_t first, int64_t count) {
    return message_of<DataError>([&] { read(source, 0, first, count); });
  };
  const auto narrow_ids = open_documents(folder.write("a.bin", llmc_uint16({1, 99, 7, 100})), 100);
  EXPECT_EQ(read(*narrow_ids, 0, 0, 3).tokens, (Ids{1, 99, 7}));
  expect_says(message(*narrow_ids, 2, 2), {"a.bin', offset 3", "token is 100", "from 0 to 99"});
  const auto wide_ids = open_documents(folder.write("b.bin", llmc_uint32({1, 4294967295, 2147483648})), 100);
  expect_says(message(*wide_ids, 0, 3), {"b.bin', offset 1", "token is 4294967295"});
  expect_says(message(*wide_ids, 2, 1), {"b.bin', offset 2", "token is 2147483648"});
}

// More than 2^32 bytes, of which the file system holds only a few.
TEST(LlmcDocuments, MayBeLargerThanMemory) {
  const TemporaryDirectory folder;
  constexpr int64_t tokens = 2147483647;
  const fs::path path = folder.write("a.bin", llmc_header(20240801, 7, tokens));
  overwrite<uint32_t>(path, 1024 + 4 * (tokens - 1), 77);
  const auto source = open_documents(path, 100);
  EXPECT_EQ(source->length(0), tokens);
  EXPECT_EQ(read(*source, 0, tokens - 2, 2).tokens, (Ids{0, 77}));
}

TEST(LlmcDocuments, SayWhenAFileChangedItsSize) {
  const TemporaryDirectory folder;
  const auto source = open_documents(folder.write("a.bin", llmc_uint16({1, 2})), 100);
  folder.write("a.bin", llmc_uint16({1, 2, 3}));
  expect_says(message_of<DataError>([&] { read_all(*source, 0); }), {"a.bin", "had 1028 bytes", "has 1030 now"});
}

// An index as its parts, with what a whole one says of itself.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t dtype = 4;
  std::vector<int32_t> lengths;
  std::vector<int64_t> offsets, starts;
  uint64_t sequences = lengths.size(), entries = starts.size();

  [[nodiscard]] std::string text() const {
    return magic + bytes<uint64_t>({version}) + static_cast<char>(dtype) + bytes<uint64_t>({sequences, entries}) +
           bytes(lengths) + bytes(offsets) + bytes(starts);
  }
};

// Documents of tokens 0 1 2 | 3 4 | 5 in three sequences, two documents.
class MegatronFiles : public testing::Test {
 protected:
  MegatronFiles() { write_tokens(Ids{0, 1, 2, 3, 4, 5}); }

  template <class T>
  void write_tokens(const std::vector<T>& tokens) const {
    folder_.write("x.bin", bytes(tokens));
  }

  std::string reason(const Index& index) const {
    folder_.write("x.idx", index.text());
    return reason_to_refuse(prefix_, 100);
  }

  std::vector<Ids> documents(const Index& index, int64_t vocabulary = 100) const {
    folder_.write("x.idx", index.text());
    return tokens_of(*open_documents(prefix_, vocabulary));
  }

  TemporaryDirectory folder_;
  fs::path prefix_ = folder_ / "x";
  const Index good_{.lengths = {3, 2, 1}, .offsets = {0, 12, 20}, .starts = {0, 2, 3}};
};

TEST_F(MegatronFiles, HoldTheDocumentsOfTheDocumentIndex) {
  EXPECT_EQ(documents(good_), (std::vector<Ids>{{0, 1, 2, 3, 4}, {5}}));
  write_tokens(std::vector<uint16_t>{7, 65535, 9});
  EXPECT_EQ(documents({.dtype = 8, .lengths = {1, 2}, .offsets = {0, 2}, .starts = {0, 1, 2}}, 65536),
            (std::vector<Ids>{{7}, {65535, 9}}));
}

TEST_F(MegatronFiles, AreNamedByEitherFileOrWhatTheirNamesShare) {
  folder_.write("x.idx", good_.text());
  for (const char* const name : {"x", "x.bin", "x.idx"}) {
    EXPECT_EQ(open_documents(folder_ / name, 100)->count(), 2) << name;
  }
  fs::rename(folder_ / "x.bin", folder_ / "data.v1.bin");
  fs::rename(folder_ / "x.idx", folder_ / "data.v1.idx");
  for (const char* const name : {"data.v1", "data.v1.bin", "data.v1.idx"}) {
    EXPECT_EQ(open_documents(folder_ / name, 100)->count(), 2) << name;
  }
}

TEST_F(MegatronFiles, AreNotFoundInAFolder) {
  folder_.write("x.idx", good_.text());
  expect_says(message_of<DataError>([&] { open_documents(folder_.path(), 300); }),
              {"x.idx'", "Megatron's *.bin itself"});
}

TEST_F(MegatronFiles, NeedBothFiles) {
  expect_says(reason_to_refuse(folder_ / "x.bin", 100), {"x.bin'", "no *.idx beside it"});
  folder_.write("x.idx", good_.text());
  fs::remove(folder_ / "x.bin");
  expect_says(reason_to_refuse(prefix_, 100), {"x.bin'", "No such file"});
}

TEST_F(MegatronFiles, AreReadInAnyParts) {
  folder_.write("x.idx", good_.text());
  const auto source = open_documents(prefix_, 100);
  EXPECT_EQ(read(*source, 0, 1, 3).tokens, (Ids{1, 2, 3}));
  EXPECT_EQ(read(*source, 0, 5, 0).tokens, Ids{});
  EXPECT_EQ(read(*source, 1, 0, 1).labels, (Ids{5}));
  EXPECT_THROW(read(*source, 1, 0, 2), InternalError);
}

TEST_F(MegatronFiles, MayHaveTheirSequencesInAnyPlace) {
  const Index index{.lengths = {2, 3, 0, 1}, .offsets = {16, 4, 0, 0}, .starts = {0, 1, 4}};
  EXPECT_EQ(documents(index), (std::vector<Ids>{{4, 5}, {1, 2, 3, 0}}));
  const auto source = open_documents(prefix_, 100);
  EXPECT_EQ(read(*source, 1, 2, 2).tokens, (Ids{3, 0}));
  EXPECT_EQ(read(*source, 1, 3, 1).tokens, (Ids{0}));
}

TEST_F(MegatronFiles, SkipEmptyDocumentsButCountThem) {
  write_tokens(Ids{0, 1, 2, 3, 4, 500});
  const Index index{.lengths = {0, 3, 0, 2, 1}, .offsets = {0, 0, 12, 12, 20}, .starts = {0, 0, 1, 2, 3, 3, 5}};
  folder_.write("x.idx", index.text());
  const auto source = open_documents(prefix_, 100);
  ASSERT_EQ(source->count(), 2);
  EXPECT_EQ(read_all(*source, 0).tokens, (Ids{0, 1, 2}));
  EXPECT_EQ(read(*source, 1, 0, 2).tokens, (Ids{3, 4}));
  expect_says(message_of<DataError>([&] { read_all(*source, 1); }),
              {"x.bin', document 5, offset 2", "token is 500", "from 0 to 99"});
}

TEST_F(MegatronFiles, NameDocumentAndOffsetOfATokenOutsideTheVocabulary) {
  write_tokens(Ids{0, 1, 100, 3, -1, 5});
  folder_.write("x.idx", good_.text());
  const auto source = open_documents(prefix_, 100);
  expect_says(message_of<DataError>([&] { read_all(*source, 0); }), {"document 0, offset 2", "token is 100"});
  expect_says(message_of<DataError>([&] { read(*source, 0, 3, 2); }), {"document 0, offset 4", "token is -1"});
  EXPECT_EQ(read_all(*source, 1).tokens, (Ids{5}));
}

TEST_F(MegatronFiles, NeedATypeThatCanNameTheVocabulary) {
  write_tokens(std::vector<uint16_t>{7, 8, 9});
  folder_.write("x.idx", Index{.dtype = 8, .lengths = {3}, .offsets = {0}, .starts = {0, 1}}.text());
  EXPECT_EQ(open_documents(prefix_, 65536)->count(), 1);
  expect_says(reason_to_refuse(prefix_, qwen3_vocabulary), {"x.bin'", "uint16", "151936", "another tokenizer"});
}

TEST_F(MegatronFiles, HaveATokenAndAnAnswer) {
  expect_says(
      reason({.lengths = {1, 1, 1, 1, 1, 1}, .offsets = {0, 4, 8, 12, 16, 20}, .starts = {0, 1, 2, 3, 4, 5, 6}}),
      {"nothing to learn"});
  write_tokens(Ids{});
  expect_says(reason({.lengths = {}, .offsets = {}, .starts = {0}}), {"no token"});
}

TEST_F(MegatronFiles, RefuseAHeaderThatIsNone) {
  const auto with = [&](auto change) {
    Index index = good_;
    change(index);
    return reason(index);
  };
  expect_says(with([](Index& i) { i.magic[0] = 'm'; }), {"x.idx'", "does not begin with MMIDIDX"});
  expect_says(with([](Index& i) { i.version = 2; }), {"x.idx'", "version is 2"});
  expect_says(with([](Index& i) { i.dtype = 5; }), {"x.idx'", "dtype code is 5", "4 (int32) and 8 (uint16)"});
  expect_says(with([](Index& i) { i.sequences = 4; }), {"counts 4 sequences", "3 document starts", "its 94 bytes"});
  expect_says(with([](Index& i) { i.entries = 4; }), {"counts 3 sequences", "4 document starts", "its 94 bytes"});
  expect_says(with([](Index& i) { i.sequences = uint64_t{1} << 62; }), {"counts 4611686018427387904 sequences"});
  expect_says(with([](Index& i) { i.entries = ~uint64_t{0}; }), {"18446744073709551615 document starts"});
  expect_says(with([](Index& i) {
                i.starts.clear();
                i.entries = 0;
              }),
              {"document index is empty"});
}

TEST_F(MegatronFiles, RefuseNumbersThatDisagree) {
  const auto of = [&](std::vector<int32_t> lengths, std::vector<int64_t> offsets, std::vector<int64_t> starts) {
    return reason({.lengths = std::move(lengths), .offsets = std::move(offsets), .starts = std::move(starts)});
  };
  expect_says(of({3, 2, 1}, {0, 12, 20}, {1, 2, 3}), {"x.idx'", "first document starts at sequence 1, not 0"});
  expect_says(of({3, 2, 1}, {0, 12, 20}, {0, 2}), {"documents end at sequence 2, but there are 3"});
  expect_says(of({3, 2, 1}, {0, 12, 20}, {0, 4}), {"document 0 starts at sequence 0 and ends before 4", "3 sequences"});
  expect_says(of({3, 2, 1}, {0, 12, 20}, {0, 2, 1, 3}), {"document 1 starts at sequence 2 and ends before 1"});
  expect_says(of({3, -2, 1}, {0, 12, 20}, {0, 2, 3}), {"sequence 1 has a length of -2"});
  expect_says(of({3, 2, 1}, {0, 12, 24}, {0, 2, 3}), {"sequence 2 has 1 int32 tokens from byte 24", "24 bytes"});
  expect_says(of({3, 2, 1}, {0, -4, 20}, {0, 2, 3}), {"sequence 1 has 2 int32 tokens from byte -4"});
  expect_says(of({3, 2, 1}, {0, 13, 20}, {0, 2, 3}), {"sequence 1 has 2 int32 tokens from byte 13"});
  expect_says(of({3, 2, 1}, {0, 9223372036854775804, 20}, {0, 2, 3}), {"from byte 9223372036854775804"});
  expect_says(of({2147483647, 2, 1}, {0, 12, 20}, {0, 2, 3}), {"sequence 0 has 2147483647 int32 tokens"});
  expect_says(of({3, 2}, {0, 12}, {0, 2}), {"5 int32 tokens, 20 bytes, but its .bin has 24"});
  expect_says(of({3, 3, 1}, {0, 12, 20}, {0, 2, 3}), {"7 int32 tokens, 28 bytes, but its .bin has 24"});
}

TEST_F(MegatronFiles, RefuseAnIndexCutAnywhere) {
  const std::string whole = good_.text();
  ASSERT_EQ(documents(good_).size(), 2U);
  for (size_t size = 0; size < whole.size(); ++size) {
    folder_.write("x.idx", whole.substr(0, size));
    EXPECT_FALSE(is_readable(prefix_, 100)) << size;
  }
  folder_.write("x.idx", whole + '\0');
  EXPECT_FALSE(is_readable(prefix_, 100));
  folder_.write("x.idx", whole);
  for (int64_t size = 0; size < 24; ++size) {
    fs::resize_file(folder_ / "x.bin", static_cast<uintmax_t>(size));
    EXPECT_FALSE(is_readable(prefix_, 100)) << size;
  }
}

// Some changes, such as of a document's start, give another index that agrees with itself.
TEST_F(MegatronFiles, GiveDocumentsOrAnErrorWhateverByteIsWrong) {
  const std::string whole = good_.text();
  int refused = 0;
  for (size_t place = 0; place < whole.size(); ++place) {
    for (const int flip : {0x01, 0x02, 0x10, 0x80, 0xFF}) {
      std::string changed = whole;
      changed[place] = static_cast<char>(changed[place] ^ flip);
      folder_.write("x.idx", changed);
      refused += is_readable(prefix_, 100) ? 0 : 1;
    }
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()) * 4);
}

// More than 2^32 bytes and tokens, of which the file system holds only a few.
TEST_F(MegatronFiles, MayBeLargerThanMemory) {
  constexpr int64_t length = 2147483647;
  overwrite<int32_t>(folder_ / "x.bin", 4 * (3 * length - 1), 77);
  folder_.write(
      "x.idx",
      Index{.lengths = {length, length, length}, .offsets = {0, 4 * length, 8 * length}, .starts = {0, 3}}.text());
  const auto source = open_documents(prefix_, 100);
  EXPECT_EQ(source->length(0), 3 * length);
  EXPECT_EQ(read(*source, 0, 3 * length - 2, 2).tokens, (Ids{0, 77}));
  EXPECT_EQ(read(*source, 0, 2, 3).tokens, (Ids{2, 3, 4}));
}

// An index longer than what is read of it at once.
TEST_F(MegatronFiles, MayHaveAnyNumberOfDocuments) {
  constexpr int32_t count = 200'000;
  Ids tokens;
  Index index;
  for (int32_t document = 0; document < count; ++document) {
    index.starts.push_back(document);
    index.lengths.push_back(document % 3);
    index.offsets.push_back(4 * std::ssize(tokens));
    tokens.insert(tokens.end(), static_cast<size_t>(document % 3), document);
  }
  index.starts.push_back(count);
  index.sequences = count;
  index.entries = count + 1;
  write_tokens(tokens);
  folder_.write("x.idx", index.text());
  const auto source = open_documents(prefix_, count);
  ASSERT_EQ(source->count(), count / 3 * 2 + 1);
  for (int64_t document = 0; document < source->count(); document += 1111) {
    const auto number = static_cast<int32_t>(document / 2 * 3 + 1 + document % 2);
    EXPECT_EQ(read_all(*source, document).tokens, Ids(static_cast<size_t>(number % 3), number));
  }
}

}  // namespace
}  // namespace annulus
