#include "runtime/data/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "kernels/error.h"
#include "runtime/data/byte_documents.h"
#include "runtime/data/folder.h"
#include "runtime/data/jsonl_documents.h"
#include "runtime/data/llmc_documents.h"
#include "runtime/data/megatron_documents.h"

namespace annulus {

namespace {

namespace fs = std::filesystem;

constexpr int64_t byte_values = 256;

bool is_there(const fs::path& path) {
  std::error_code unknown;  // what cannot be looked at says so when it is opened
  return fs::exists(path, unknown);
}

// X, where `path` names the token file of X.bin and X.idx.
std::optional<fs::path> megatron_prefix(const fs::path& path) {
  const fs::path stem = fs::path(path).replace_extension();
  if (path.extension() == ".idx") return stem;
  if (path.extension() == ".bin" && is_there(megatron_index_path(stem))) return stem;
  if (!is_there(path) && is_there(megatron_index_path(path))) return path;
  return std::nullopt;
}

// Whether the files, all that data.train names, are token files. A mixture is nothing anybody would mean.
bool are_token_files(const std::vector<fs::path>& files, const fs::path& path) {
  const auto is_token_file = [](const fs::path& file) { return file.extension() == ".bin"; };
  const auto token_file = std::ranges::find_if(files, is_token_file);
  const auto other = std::ranges::find_if_not(files, is_token_file);
  if (token_file == files.end() || other == files.end()) return other == files.end();
  throw DataError(
      fmt::format("data.train '{}' holds token files and others, such as '{}' and '{}'; give llm.c's *.bin a folder of "
                  "their own, and name Megatron's *.bin itself",
                  path.string(), token_file->string(), other->string()));
}

// JSON Lines whose bytes would be trained on because of where they lie or how they are called.
void refuse_json_as_text(const std::vector<fs::path>& files, const fs::path& path) {
  for (const fs::path& file : files) {
    std::string extension = file.extension().string();
    std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
    if (extension != ".jsonl" && (extension != ".json" || files.size() > 1)) continue;
    throw DataError(fmt::format(
        "data.train '{}' would be read as bytes, but '{}' seems to hold JSON; documents with input_ids are read "
        "from one file whose name ends in .jsonl",
        path.string(), file.string()));
  }
}

// Where every token is its own label, a document of two has an answer.
void check_something_to_learn(const DocumentSource& source, const fs::path& path) {
  if (source.count() == 0) {
    throw DataError(fmt::format("data.train '{}' holds no token: all its documents are empty", path.string()));
  }
  for (int64_t document = 0; document < source.count(); ++document) {
    if (source.length(document) > 1) return;
  }
  throw DataError(
      fmt::format("data.train '{}' has nothing to learn: every document has only one token, and what follows it is not "
                  "known; give longer documents",
                  path.string()));
}

std::unique_ptr<DocumentSource> open_self_labelled(const fs::path& path, int64_t vocabulary) {
  if (const std::optional<fs::path> prefix = megatron_prefix(path)) {
    return std::make_unique<MegatronDocuments>(*prefix, vocabulary);
  }
  const std::vector<fs::path> files = files_at(path);
  if (are_token_files(files, path)) return std::make_unique<LlmcDocuments>(files, vocabulary);
  refuse_json_as_text(files, path);
  if (vocabulary < byte_values) {
    throw DataError(
        fmt::format("data.train '{}' would be read as bytes, whose {} values do not fit the model's vocabulary "
                    "of {}; give token files, *.jsonl with input_ids, or a model with a larger vocabulary",
                    path.string(), byte_values, vocabulary));
  }
  return std::make_unique<ByteDocuments>(files);
}

}  // namespace

std::unique_ptr<DocumentSource> open_documents(const fs::path& path, int64_t vocabulary) {
  if (path.extension() == ".jsonl") return std::make_unique<JsonlDocuments>(path, vocabulary);
  std::unique_ptr<DocumentSource> source = open_self_labelled(path, vocabulary);
  check_something_to_learn(*source, path);
  return source;
}

}  // namespace annulus
