#include "runtime/data/byte_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>

#include "kernels/error.h"
#include "kernels/narrow.h"
#include "runtime/files/file.h"

namespace annulus {

namespace {

namespace fs = std::filesystem;

void check(const std::error_code& error, const fs::path& path) {
  if (error) throw DataError(fmt::format("cannot read '{}': {}", path.string(), error.message()));
}

// The regular files below `folder`, in the order of the bytes of their paths.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code status_error;
    const fs::file_type type = entry->status(status_error).type();
    if (type == fs::file_type::none) check(status_error, entry->path());
    if (type == fs::file_type::regular) files.push_back(entry->path().generic_string());
  }
  check(error, folder);
  std::ranges::sort(files);  // all begin with the folder, and strings compare as unsigned bytes
  return files;
}

}  // namespace

ByteDocuments::ByteDocuments(const fs::path& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  check(error, path);
  for (const std::string& file : folder ? files_below(path) : std::vector{path.string()}) {
    const int64_t size = InputFile(file).size();  // opened, so that a file that may not be read is found now
    if (size > 0) files_.push_back({file, size});
  }
  if (files_.empty()) {
    throw DataError(fmt::format("data.train '{}' holds no token: {}", path.string(),
                                folder ? "there is no file below it, or all are empty" : "the file is empty"));
  }
  if (std::ranges::all_of(files_, [](const File& file) { return file.size < 2; })) {
    throw DataError(
        fmt::format("data.train '{}' has nothing to learn: every document has only one byte, and what follows it "
                    "is not known; give longer documents",
                    path.string()));
  }
}

int64_t ByteDocuments::length(int64_t document) const {
  return files_[narrow<size_t>(document)].size;
}

void ByteDocuments::read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const {
  const File& known = files_[narrow<size_t>(document)];
  require(tokens.size() == labels.size() && first >= 0 && first + std::ssize(tokens) <= known.size,
          "a document is read within its length");
  const InputFile file(known.path);
  if (file.size() != known.size) {
    throw DataError(
        fmt::format("'{}' had {} bytes when training began and has {} now; leave data.train alone until the end",
                    known.path.string(), known.size, file.size()));
  }
  std::array<std::byte, 65536> buffer;
  for (size_t done = 0; done < tokens.size();) {
    const auto piece = std::span(buffer).first(std::min(buffer.size(), tokens.size() - done));
    file.read(first + narrow<int64_t>(done), piece);
    std::ranges::transform(piece, tokens.begin() + narrow<int64_t>(done),
                           [](std::byte byte) { return std::to_integer<int32_t>(byte); });
    done += piece.size();
  }
  std::ranges::copy(tokens, labels.begin());
}

}  // namespace annulus
