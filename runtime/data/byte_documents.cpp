#include "runtime/data/byte_documents.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/error.h"
#include "kernels/narrow.h"
#include "runtime/files/file.h"

namespace annulus {

ByteDocuments::ByteDocuments(std::span<const std::filesystem::path> files) {
  for (const std::filesystem::path& file : files) {
    const int64_t size = InputFile(file).size();  // opened, so that a file that may not be read is found now
    if (size > 0) files_.push_back({file, size});
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
  file.require_size(known.size);
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
