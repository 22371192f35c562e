// Documents of a source as tests look at them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/data/documents.h"

namespace annulus {

using Ids = std::vector<int32_t>;

struct Part {
  Ids tokens, labels;
};

inline Part read(const DocumentSource& source, int64_t document, int64_t first, int64_t count) {
  Part part{Ids(static_cast<size_t>(count), -7), Ids(static_cast<size_t>(count), -7)};
  source.read(document, first, part.tokens, part.labels);
  return part;
}

inline Part read_all(const DocumentSource& source, int64_t document) {
  return read(source, document, 0, source.length(document));
}

// The tokens of every document, each of which must be its own label.
inline std::vector<Ids> tokens_of(const DocumentSource& source) {
  std::vector<Ids> documents;
  for (int64_t document = 0; document < source.count(); ++document) {
    Part part = read_all(source, document);
    EXPECT_EQ(part.labels, part.tokens);
    documents.push_back(std::move(part.tokens));
  }
  return documents;
}

}  // namespace annulus
