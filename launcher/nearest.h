// What somebody who mistyped a name most likely meant.
#pragma once

#include <cstdint>
#include <string_view>

namespace annulus {

// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other (optimal string
// alignment: Boytsov, "Indexing methods for approximate dictionary searching", 2011, section 2.2). Only the first
// 64 letters of a word count: no name is as long, and what somebody typed may be a page.
int64_t edit_distance(std::string_view a, std::string_view b);

}  // namespace annulus
