#include "launcher/nearest.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace annulus {

namespace {

constexpr size_t longest_compared = 64;

}  // namespace

int64_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, longest_compared);
  b = b.substr(0, longest_compared);
  // Row i % 3: the distances of the first i letters of a to each beginning of b.
  std::array<std::array<int64_t, longest_compared + 1>, 3> rows{};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& now = rows[i % 3];
    const auto& before = rows[(i + 2) % 3];
    const auto& two_before = rows[(i + 1) % 3];
    now[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t substituted = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      int64_t fewest = std::min(std::min(before[j], now[j - 1]) + 1, substituted);
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) fewest = std::min(fewest, two_before[j - 2] + 1);
      now[j] = fewest;
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace annulus
