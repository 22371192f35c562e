#include "runtime/data/megatron_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/error.h"
#include "kernels/narrow.h"

namespace annulus {

namespace {

std::filesystem::path tokens_path(std::filesystem::path prefix) {
  return prefix += ".bin";
}

}  // namespace

std::filesystem::path megatron_index_path(std::filesystem::path prefix) {
  return prefix += ".idx";
}

MegatronDocuments::MegatronDocuments(const std::filesystem::path& prefix, int64_t vocabulary)
    : file_(tokens_path(prefix)),
      index_(read_megatron_index(megatron_index_path(prefix), file_.size())),
      vocabulary_(vocabulary) {
  check_token_type(index_.type, vocabulary, file_.path());
}

int64_t MegatronDocuments::begin(int64_t document) const {
  return document == 0 ? 0 : index_.ends[narrow<size_t>(document - 1)];
}

int64_t MegatronDocuments::length(int64_t document) const {
  return index_.ends[narrow<size_t>(document)] - begin(document);
}

void MegatronDocuments::read(int64_t document, int64_t first, std::span<int32_t> tokens,
                             std::span<int32_t> labels) const {
  require(tokens.size() == labels.size() && first >= 0 && first + std::ssize(tokens) <= length(document),
          "a document is read within its length");
  int64_t token = begin(document) + first;
  auto extent = std::ranges::upper_bound(index_.extents, token, {}, &MegatronIndex::Extent::first) - 1;
  for (std::span<int32_t> rest = tokens; !rest.empty(); ++extent) {
    const bool last = extent + 1 == index_.extents.end();
    const int64_t here = last ? std::ssize(rest) : std::min((extent + 1)->first - token, std::ssize(rest));
    const auto piece = rest.first(narrow<size_t>(here));
    read_tokens(file_, index_.type, extent->offset + (token - extent->first) * size_of(index_.type), piece);
    token += here;
    rest = rest.subspan(piece.size());
  }
  check_tokens(tokens, index_.type, vocabulary_, {name_of_document(document), first});
  std::ranges::copy(tokens, labels.begin());
}

// Numbered as the document index does, empty ones included.
std::string MegatronDocuments::name_of_document(int64_t document) const {
  const auto& skipped = index_.skipped;
  const int64_t number = document + (std::ranges::upper_bound(skipped, document) - skipped.begin());
  return fmt::format("'{}', document {}", file_.path().string(), number);
}

}  // namespace annulus
