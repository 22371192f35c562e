#include "runtime/data/documents.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "tests/runtime/document_parts.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

std::vector<std::string> texts_of(const DocumentSource& source) {
  std::vector<std::string> texts;
  for (int64_t document = 0; document < source.count(); ++document) {
    const Ids tokens = read_all(source, document).tokens;
    std::string& text = texts.emplace_back();
    for (const int32_t token : tokens) text += static_cast<char>(token);
  }
  return texts;
}

std::unique_ptr<DocumentSource> open_lines(const std::string& text, int64_t vocabulary = 100) {
  const TemporaryDirectory folder;  // the file stays readable once it is open
  return open_documents(folder.write("train.jsonl", text), vocabulary);
}

// Opens lines of which one is wrong; the message names the file.
std::string reason_to_refuse(const std::string& text, int64_t vocabulary = 100) {
  const std::string message = message_of<DataError>([&] { open_lines(text, vocabulary); });
  expect_says(message, {"train.jsonl"});
  return message;
}

TEST(JsonlDocuments, AreOneALineWithLabelsOrACopyOfTheTokens) {
  const auto source = open_lines("{\"input_ids\": [5, 0, 99]}\n{\"labels\":[-100,-100,3,4],\"input_ids\":[1,2,3,4]}\n");
  ASSERT_EQ(source->count(), 2);
  EXPECT_EQ(source->length(0), 3);
  EXPECT_EQ(source->length(1), 4);
  EXPECT_EQ(read_all(*source, 0).tokens, (Ids{5, 0, 99}));
  EXPECT_EQ(read_all(*source, 0).labels, (Ids{5, 0, 99}));
  EXPECT_EQ(read_all(*source, 1).tokens, (Ids{1, 2, 3, 4}));
  EXPECT_EQ(read_all(*source, 1).labels, (Ids{no_label, no_label, 3, 4}));
}

TEST(JsonlDocuments, AreReadInAnyPartsAndOrder) {
  const auto source = open_lines("{\"input_ids\":[0,1,2,3,4,5,6]}\n{\"input_ids\":[7,8,9]}");
  EXPECT_EQ(read(*source, 1, 1, 2).tokens, (Ids{8, 9}));
  EXPECT_EQ(read(*source, 0, 5, 2).tokens, (Ids{5, 6}));
  EXPECT_EQ(read(*source, 0, 0, 2).labels, (Ids{0, 1}));
  EXPECT_EQ(read(*source, 0, 7, 0).tokens, Ids{});
  EXPECT_EQ(read(*source, 1, 0, 1).tokens, (Ids{7}));
  EXPECT_THROW(read(*source, 1, 2, 2), InternalError);
}

TEST(JsonlDocuments, SkipBlankLinesAndEmptyDocuments) {
  const auto source = open_lines(
      "\n  \t\n{\"input_ids\":[]}\n{\"input_ids\":[1,2]}\r\n\r\n{\"input_ids\":[],\"labels\":[]}\n{\"input_ids\":[3]}");
  ASSERT_EQ(source->count(), 2);
  EXPECT_EQ(read_all(*source, 0).tokens, (Ids{1, 2}));
  EXPECT_EQ(read_all(*source, 1).tokens, (Ids{3}));
}

TEST(JsonlDocuments, IgnoreOtherKeysWhateverTheyHold) {
  const auto source = open_lines(
      R"({"text":"a\"]}[\n","meta":{"input_ids":[1,2,3.5,null],"labels":"x","deep":[[{"input_ids":[500]}]]},)"
      R"("input_ids":[1,2],"score":-1.5,"n":18446744073709551615,"flag":true,"none":null,"more":[1,[2,"3"]]})");
  ASSERT_EQ(source->count(), 1);
  EXPECT_EQ(read_all(*source, 0).tokens, (Ids{1, 2}));
  EXPECT_EQ(read_all(*source, 0).labels, (Ids{1, 2}));
}

// Lines longer than what is read at once, and many, so that some end at every place within it.
TEST(JsonlDocuments, MayBeLongerThanAnyBuffer) {
  std::string text;
  std::vector<Ids> expected;
  int32_t token = 0;
  for (const int length : {3, 400'000, 1, 700'000, 2, 5}) {
    Ids& ids = expected.emplace_back();
    text += "{\"input_ids\":[";
    for (int i = 0; i < length; ++i) {
      ids.push_back(token = (token * 31 + 7) % 1000);
      if (i > 0) text += ',';
      text += std::to_string(token);
    }
    text += "]}\n";
  }
  ASSERT_GT(text.size(), size_t{3} << 20);
  const auto source = open_lines(text, 1000);
  ASSERT_EQ(source->count(), 6);
  for (int64_t document = 5; document >= 0; --document) {
    EXPECT_EQ(read_all(*source, document).tokens, expected[static_cast<size_t>(document)]);
  }
}

TEST(JsonlDocuments, MayUseEveryTokenOfTheVocabularyAndNoOther) {
  EXPECT_EQ(read_all(*open_lines("{\"input_ids\":[0,99]}"), 0).tokens, (Ids{0, 99}));
  const std::string good = "{\"input_ids\":[1,2]}\n\n";
  expect_says(reason_to_refuse(good + "{\"input_ids\":[1,2,100]}"),
              {"the document in line 3", "offset 2", "input_ids holds 100", "from 0 to 99"});
  expect_says(reason_to_refuse(good + "{\"input_ids\":[1,-1]}"), {"line 3", "offset 1", "input_ids holds -1"});
  expect_says(reason_to_refuse("{\"input_ids\":[-100]}"), {"line 1", "offset 0", "input_ids holds -100"});
  expect_says(reason_to_refuse("{\"input_ids\":[4294967296]}"), {"offset 0", "holds 4294967296"});
}

TEST(JsonlDocuments, MayHaveLabelsOfMinus100OrTokensAndNoOther) {
  const auto reason = [](const std::string& labels) {
    return reason_to_refuse("{\"input_ids\":[1,2,3],\"labels\":" + labels + "}");
  };
  expect_says(reason("[1,2,100]"), {"line 1", "offset 2", "labels holds 100", "-100 (none) or a token from 0 to 99"});
  expect_says(reason("[1,-1,3]"), {"line 1", "offset 1", "labels holds -1"});
  expect_says(reason("[-101,2,3]"), {"line 1", "offset 0", "labels holds -101"});
  expect_says(reason("[1,2]"), {"line 1", "3 input_ids but 2 labels"});
  expect_says(reason("[1,2,3,4]"), {"3 input_ids but 4 labels"});
  expect_says(reason("[]"), {"3 input_ids but 0 labels"});
  expect_says(reason("null"), {"'labels' is null, not an array"});
}

TEST(JsonlDocuments, RefuseWhatIsNotAnInteger) {
  const auto reason = [](const std::string& ids) { return reason_to_refuse("{\"input_ids\":" + ids + "}"); };
  expect_says(reason("[1,2.0]"), {"line 1", "offset 1", "input_ids holds 2.0, which is not an integer"});
  expect_says(reason("[1,1e0]"), {"offset 1", "holds 1e0"});
  expect_says(reason("[1e400]"), {"line 1", "not valid JSON", "1e400"});
  expect_says(reason("[18446744073709551616]"), {"offset 0", "holds 18446744073709551616"});
  expect_says(reason("[true]"), {"offset 0", "holds true"});
  expect_says(reason("[1,null]"), {"offset 1", "holds null"});
  expect_says(reason("[\"1\"]"), {"offset 0", "holds a string"});
  expect_says(reason("[[1]]"), {"offset 0", "holds an array"});
  expect_says(reason("[1,{}]"), {"offset 1", "holds an object"});
  expect_says(reason("5"), {"'input_ids' is 5, not an array"});
  expect_says(reason("{\"a\":[1]}"), {"'input_ids' is an object, not an array"});
}

TEST(JsonlDocuments, RefuseLinesThatAreNoDocument) {
  const std::string good = "{\"input_ids\":[1,2]}\n";
  expect_says(reason_to_refuse(good + "{\"ids\":[1]}"), {"line 2", "no key 'input_ids'"});
  expect_says(reason_to_refuse(good + "[1,2]"), {"line 2", "it is an array, not an object"});
  expect_says(reason_to_refuse(good + "7"), {"line 2", "it is 7, not an object"});
  expect_says(reason_to_refuse(good + "\"text\""), {"line 2", "it is a string, not an object"});
  expect_says(reason_to_refuse(good + "{\"input_ids\":[1,2]"), {"line 2", "not valid JSON"});
  expect_says(reason_to_refuse(good + "{\"input_ids\":[1,2]} {}"), {"line 2", "not valid JSON"});
  expect_says(reason_to_refuse(good + "{\"input_ids\":[01]}"), {"line 2", "not valid JSON"});
  expect_says(reason_to_refuse(good + "{\"input_ids\":[NaN]}"), {"line 2", "not valid JSON"});
  expect_says(reason_to_refuse(good + std::string("{\"input_ids\":[1]}\0x", 19)), {"line 2", "byte 17 is zero"});
  expect_says(reason_to_refuse("{\"input_ids\":[1],\"input_ids\":[2]}"), {"line 1", "'input_ids' appears twice"});
  expect_says(reason_to_refuse("{\"x\":" + std::string(2'000'000, '[')), {"line 1", "not valid JSON"});
}

TEST(JsonlDocuments, HaveATokenAndAnAnswer) {
  expect_says(reason_to_refuse(""), {"holds no token"});
  expect_says(reason_to_refuse("\n{\"input_ids\":[]}\n"), {"holds no token"});
  expect_says(reason_to_refuse("{\"input_ids\":[1]}\n{\"input_ids\":[2]}"), {"nothing to learn"});
  expect_says(reason_to_refuse("{\"input_ids\":[1,2],\"labels\":[1,-100]}"), {"nothing to learn"});
  EXPECT_EQ(open_lines("{\"input_ids\":[1]}\n{\"input_ids\":[1,2],\"labels\":[-100,2]}")->count(), 2);
}

TEST(JsonlDocuments, SayWhenTheirFileChangedUnderneath) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.write("train.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5]}\n");
  const auto source = open_documents(path, 100);
  read_all(*source, 1);
  folder.write("train.jsonl", "{\"input_ids\":[1,222]}\n{\"input_ids\":[4,5]}\n");
  expect_says(message_of<DataError>([&] { read_all(*source, 0); }), {"train.jsonl", "line 1"});
  folder.write("train.jsonl", "{\"input_ids\":[1,22]} \n{\"input_ids\":[4,5]}\n");
  expect_says(message_of<DataError>([&] { read_all(*source, 0); }), {"line 1", "not what it was"});
  folder.write("train.jsonl", "{}");
  expect_says(message_of<DataError>([&] { read_all(*source, 0); }), {"train.jsonl", "ends at byte 2"});
}

TEST(ByteDocuments, AreTheBytesOfAFile) {
  const TemporaryDirectory folder;
  const auto source = open_documents(folder.write("book.txt", std::string("a\0\xff\n", 4)), 256);
  ASSERT_EQ(source->count(), 1);
  EXPECT_EQ(source->length(0), 4);
  EXPECT_EQ(read_all(*source, 0).tokens, (Ids{97, 0, 255, 10}));
  EXPECT_EQ(read_all(*source, 0).labels, (Ids{97, 0, 255, 10}));
  EXPECT_EQ(read(*source, 0, 1, 2).tokens, (Ids{0, 255}));
}

TEST(ByteDocuments, MayBeLongerThanAnyBuffer) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>(i * 7 % 251);
  const TemporaryDirectory folder;
  const auto source = open_documents(folder.write("book.txt", text), 256);
  const Part part = read(*source, 0, 12'345, 180'000);
  for (size_t i = 0; i < 180'000; ++i) ASSERT_EQ(part.tokens[i], static_cast<int32_t>((i + 12'345) * 7 % 251));
  EXPECT_EQ(part.labels, part.tokens);
}

// '-' and '.' sort before '/', '0' after it; bytes above 127 come last. Hidden files count, empty ones do not.
TEST(ByteDocuments, OfAFolderAreInTheByteOrderOfTheirPaths) {
  const TemporaryDirectory folder;
  const std::vector<std::string> names = {".hidden", "B",    "a-", "a.txt", "a/.x",
                                          "a/b/c",   "a/b0", "a0", "b",     "\xc3\xa9"};
  for (auto name = names.rbegin(); name != names.rend(); ++name) folder.write(*name, *name);
  folder.write("a/empty", "");
  std::filesystem::create_directory(folder / "no files");
  EXPECT_EQ(texts_of(*open_documents(folder.path(), 256)), names);
  EXPECT_EQ(texts_of(*open_documents(folder.path() / "", 256)), names);
}

TEST(ByteDocuments, FollowLinksToFilesOnly) {
  const TemporaryDirectory folder, elsewhere;
  folder.write("a", "first");
  std::filesystem::create_symlink(elsewhere.write("file", "linked"), folder / "b");
  std::filesystem::create_directory_symlink(elsewhere.path(), folder / "c");
  std::filesystem::create_symlink(folder / "absent", folder / "d");
  EXPECT_EQ(texts_of(*open_documents(folder.path(), 256)), (std::vector<std::string>{"first", "linked"}));
}

TEST(ByteDocuments, HoldNoFileOpen) {
  const TemporaryDirectory folder;
  constexpr int files = 300;
  for (int i = 0; i < files; ++i) folder.write(std::to_string(1000 + i), std::to_string(1000 + i));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto source = open_documents(folder.path(), 256);
  EXPECT_EQ(texts_of(*source).back(), "1299");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(source->count(), files);
}

TEST(ByteDocuments, NeedAVocabularyOf256) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.write("book.txt", "text");
  EXPECT_EQ(open_documents(path, 256)->count(), 1);
  expect_says(message_of<DataError>([&] { open_documents(path, 255); }),
              {"book.txt", "256 values", "vocabulary of 255"});
}

TEST(ByteDocuments, HaveATokenAndAnAnswer) {
  const TemporaryDirectory folder;
  const auto message = [](const std::filesystem::path& path) {
    return message_of<DataError>([&] { open_documents(path, 256); });
  };
  expect_says(message(folder.path()), {folder.path().string(), "no token", "no file below"});
  expect_says(message(folder.write("sub/empty", "")), {"sub/empty", "no token", "documents are empty"});
  expect_says(message(folder.path()), {"no token"});
  folder.write("sub/one", "x");
  expect_says(message(folder.path()), {folder.path().string(), "nothing to learn", "only one token"});
  folder.write("sub/two", "xy");
  EXPECT_EQ(open_documents(folder.path(), 256)->count(), 2);
}

TEST(ByteDocuments, SayWhenAFileChangedItsSize) {
  const TemporaryDirectory folder;
  const auto source = open_documents(folder.write("book.txt", "four"), 256);
  folder.write("book.txt", "fives");
  expect_says(message_of<DataError>([&] { read_all(*source, 0); }), {"book.txt", "had 4 bytes", "has 5 now"});
  std::filesystem::remove(folder / "book.txt");
  expect_says(message_of<DataError>([&] { read_all(*source, 0); }), {"book.txt", "No such file"});
}

TEST(OpenDocuments, SaysWhatIsMissing) {
  const TemporaryDirectory folder;
  const auto message = [](const std::filesystem::path& path) {
    return message_of<DataError>([&] { open_documents(path, 256); });
  };
  expect_says(message(folder / "absent"), {"absent", "No such file"});
  expect_says(message(folder / "absent.jsonl"), {"absent.jsonl", "No such file"});
  expect_says(message(folder / "absent.bin"), {"absent.bin", "No such file"});
  expect_says(message(folder / "absent.idx"), {"absent.bin", "No such file"});
}

TEST(Documents, RefusesJsonThatWouldBeReadAsBytes) {
  const TemporaryDirectory folder;
  const std::string line = "{\"input_ids\": [1, 2]}\n";
  folder.write("text/a.txt", "some text");
  folder.write("text/b.jsonl", line);
  for (const auto& path : {folder / "text", folder.write("docs.json", line), folder.write("docs.JSONL", line)}) {
    expect_says(message_of<DataError>([&] { open_documents(path, 256); }), {path.string(), "read as bytes", ".jsonl"});
  }
}

}  // namespace
}  // namespace annulus
