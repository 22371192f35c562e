#include "runtime/data/documents.h"

#include <fmt/format.h>

#include "kernels/error.h"
#include "runtime/data/byte_documents.h"
#include "runtime/data/jsonl_documents.h"

namespace annulus {

namespace {

constexpr int64_t byte_values = 256;

}  // namespace

std::unique_ptr<DocumentSource> open_documents(const std::filesystem::path& path, int64_t vocabulary) {
  if (path.extension() == ".jsonl") return std::make_unique<JsonlDocuments>(path, vocabulary);
  if (path.extension() == ".bin" || path.extension() == ".idx") {
    throw DataError(
        fmt::format("data.train '{}' looks like a token file, which this version does not read; give *.jsonl "
                    "with input_ids, or text under another name",
                    path.string()));
  }
  if (vocabulary < byte_values) {
    throw DataError(
        fmt::format("data.train '{}' would be read as bytes, whose {} values do not fit the model's vocabulary "
                    "of {}; give *.jsonl with input_ids, or a model with a larger vocabulary",
                    path.string(), byte_values, vocabulary));
  }
  return std::make_unique<ByteDocuments>(path);
}

}  // namespace annulus
