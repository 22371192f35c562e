// What must hold for the documents of any file that was not refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/error.h"
#include "runtime/data/documents.h"

namespace annulus {

// Reads every document as a whole and in two parts.
inline void check_documents(const DocumentSource& source, int64_t vocabulary) {
  const auto is_token = [&](int32_t token) { return token >= 0 && token < vocabulary; };
  for (int64_t document = 0; document < source.count(); ++document) {
    const int64_t length = source.length(document);
    require(length >= 1, "a document has a token");
    const auto size = static_cast<size_t>(length), half = size / 2;
    std::vector<int32_t> tokens(size), labels(size), again_tokens(size), again_labels(size);
    source.read(document, 0, tokens, labels);
    require(std::ranges::all_of(tokens, is_token), "every token is in the vocabulary");
    require(std::ranges::all_of(labels, [&](int32_t label) { return label == no_label || is_token(label); }),
            "every label is in the vocabulary, or none");

    source.read(document, length / 2, std::span(again_tokens).subspan(half), std::span(again_labels).subspan(half));
    source.read(document, 0, std::span(again_tokens).first(half), std::span(again_labels).first(half));
    require(tokens == again_tokens && labels == again_labels, "a document reads the same in parts");
  }
}

}  // namespace annulus
