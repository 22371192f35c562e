#include "runtime/files/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "kernels/error.h"
#include "tests/runtime/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

std::string read(const InputFile& file, int64_t offset, size_t bytes) {
  std::string text(bytes, '?');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

void write(OutputFile& file, const std::string& text) {
  file.write(std::as_bytes(std::span(text)));
}

TEST(InputFile, ReadsAnyRange) {
  const TemporaryDirectory folder;
  const InputFile file(folder.write("a", "0123456789"));
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(read(file, 0, 10), "0123456789");
  EXPECT_EQ(read(file, 7, 3), "789");
  EXPECT_EQ(read(file, 10, 0), "");
}

TEST(InputFile, StaysOpenWhenMoved) {
  const TemporaryDirectory folder;
  InputFile first(folder.write("a", "aaa"));
  InputFile second(folder.write("b", "bbbb"));
  InputFile moved(std::move(first));
  EXPECT_EQ(read(moved, 0, 3), "aaa");
  moved = std::move(second);
  EXPECT_EQ(moved.size(), 4);
  EXPECT_EQ(moved.path(), folder / "b");
  EXPECT_EQ(read(moved, 0, 4), "bbbb");
}

TEST(InputFile, SaysWhichFileIsMissing) {
  const TemporaryDirectory folder;
  expect_says(message_of<DataError>([&] { InputFile file(folder / "absent"); }), {"absent", "No such file"});
}

TEST(InputFile, RefusesWhatIsNotARegularFileWithoutWaitingForIt) {
  const TemporaryDirectory folder;
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::filesystem::path& path : {folder.path(), pipe}) {
    expect_says(message_of<DataError>([&] { InputFile file(path); }), {path.string(), "not a regular file"});
  }
}

TEST(InputFile, SaysWhereAFileEndsEarly) {
  const TemporaryDirectory folder;
  const InputFile file(folder.write("short", "0123456789"));
  expect_says(message_of<DataError>([&] { read(file, 8, 5); }), {"short", "ends at byte 10", "3 bytes early"});
}

TEST(OutputFile, AppearsWholeAtCommitAndNotBefore) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.write("result", "old");
  OutputFile file(path);
  write(file, "new ");
  write(file, "text");
  EXPECT_EQ(bytes_of(path), "old");
  file.commit();
  EXPECT_EQ(bytes_of(path), "new text");
  EXPECT_FALSE(std::filesystem::exists(folder / "result.partial"));
}

TEST(OutputFile, VanishesWithoutCommit) {
  const TemporaryDirectory folder;
  {
    OutputFile file(folder / "result");
    write(file, "half");
    EXPECT_EQ(bytes_of(folder / "result.partial"), "half");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(OutputFile, ReplacesWhatACrashLeftBeside) {
  const TemporaryDirectory folder;
  folder.write("result.partial", "a longer remnant");
  OutputFile file(folder / "result");
  write(file, "x");
  file.commit();
  EXPECT_EQ(bytes_of(folder / "result"), "x");
}

TEST(OutputFile, CallsAFullDiskAMemoryError) {
  const TemporaryDirectory folder;
  std::filesystem::create_symlink("/dev/full", folder / "result.partial");
  OutputFile file(folder / "result");
  expect_says(message_of<MemoryError>([&] { write(file, "x"); }), {"result'", "No space left"});
}

TEST(OutputFile, CallsALimitOnTheSizeOfFilesAMemoryErrorAndLeavesNothing) {
  const TemporaryDirectory folder;
  folder.write("result", "old");
  {
    const FileSizeLimit limit(100);
    OutputFile file(folder / "result");
    write(file, std::string(100, 'x'));
    expect_says(message_of<MemoryError>([&] { write(file, "y"); }), {"result'", "File too large", "ulimit -f"});
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "result.partial"));
  EXPECT_EQ(bytes_of(folder / "result"), "old");
}

TEST(OutputFile, WaitsFinishedUntilItIsCommitted) {
  const TemporaryDirectory folder;
  {
    OutputFile file(folder / "result");
    write(file, "x");
    file.finish();
    EXPECT_THROW(write(file, "y"), InternalError);
    EXPECT_THROW(file.finish(), InternalError);
    EXPECT_FALSE(std::filesystem::exists(folder / "result"));
    file.commit();
    EXPECT_THROW(file.commit(), InternalError);
    EXPECT_EQ(bytes_of(folder / "result"), "x");
    OutputFile(folder / "other").finish();
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "other.partial"));
}

TEST(OutputFile, CallsAPlaceThatCannotBeWrittenAnEnvironmentError) {
  const TemporaryDirectory folder;
  expect_says(message_of<EnvironmentError>([&] { OutputFile file(folder / "absent/result"); }),
              {"absent/result", "No such file", "check that its folder exists"});
}

TEST(OutputFile, LeavesNothingBesideWhenTheRenameFails) {
  const TemporaryDirectory folder;
  folder.write("result/inside", "a folder in the way");
  {
    OutputFile file(folder / "result");
    write(file, "x");
    expect_says(message_of<EnvironmentError>([&] { file.commit(); }), {"result'", "directory"});
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "result.partial"));
  EXPECT_EQ(bytes_of(folder / "result/inside"), "a folder in the way");
}

TEST(GrowingFile, HoldsWhatWasAppendedAtOnce) {
  const TemporaryDirectory folder;
  GrowingFile file(folder.write("log", "of an earlier run"));
  EXPECT_EQ(bytes_of(folder / "log"), "");
  file.append("one\n");
  EXPECT_EQ(bytes_of(folder / "log"), "one\n");
  file.append("two\n");
  EXPECT_EQ(bytes_of(folder / "log"), "one\ntwo\n");
}

TEST(GrowingFile, TakesBackWhatDoesNotFit) {
  const TemporaryDirectory folder;
  GrowingFile file(folder / "log");
  const FileSizeLimit limit(10);
  file.append("one\n");
  expect_says(message_of<MemoryError>([&] { file.append("a longer line\n"); }), {"log'", "File too large"});
  EXPECT_EQ(bytes_of(folder / "log"), "one\n");
}

TEST(GrowingFile, CallsAFullDiskAMemoryErrorAndAnAbsentFolderAnEnvironmentError) {
  const TemporaryDirectory folder;
  std::filesystem::create_symlink("/dev/full", folder / "log");
  GrowingFile file(folder / "log");
  expect_says(message_of<MemoryError>([&] { file.append("x"); }), {"log'", "No space left"});
  expect_says(message_of<EnvironmentError>([&] { GrowingFile absent(folder / "absent/log"); }),
              {"absent/log", "No such file"});
}

TEST(GrowingFile, NoticesThatItWasRemoved) {
  const TemporaryDirectory folder;
  GrowingFile file(folder / "log");
  file.append("one\n");
  std::filesystem::remove(folder / "log");
  expect_says(message_of<EnvironmentError>([&] { file.append("two\n"); }), {"log'", "removed"});
}

TEST(CreateFolders, MakesWhatIsMissingAndNamesWhatIsInTheWay) {
  const TemporaryDirectory folder;
  create_folders(folder / "a/b");
  create_folders(folder / "a/b");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b"));
  folder.write("file", "");
  expect_says(message_of<EnvironmentError>([&] { create_folders(folder / "file/b"); }), {"file/b", "Not a directory"});
}

TEST(RemoveFile, RemovesWhatIsThere) {
  const TemporaryDirectory folder;
  remove_file(folder.write("a", "x"));
  remove_file(folder / "a");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  expect_says(message_of<EnvironmentError>([&] { remove_file(folder.path()); }), {folder.path().string()});
}

TEST(ReadText, GivesEveryByte) {
  const TemporaryDirectory folder;
  const std::string text("a\0\xff\n", 4);
  EXPECT_EQ(read_text(folder.write("text", text)), text);
  EXPECT_EQ(read_text(folder.write("empty", "")), "");
}

TEST(ReadText, RefusesAFileTooLargeToBeMeant) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.write("large", "");
  std::filesystem::resize_file(path, (int64_t{64} << 20) + 1);
  expect_says(message_of<DataError>([&] { read_text(path); }), {"large", "67108865 bytes", "right file"});
}

}  // namespace
}  // namespace annulus
