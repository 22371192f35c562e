#include "launcher/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace annulus {

int64_t edit_distance(std::string_view a, std::string_view b) {
  // Distances of the first i, i − 1 and i − 2 letters of a to each beginning of b.
  std::vector<int64_t> now(b.size() + 1), before(b.size() + 1), two_before(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) now[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(two_before, before);
    std::swap(before, now);
    now[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t substituted = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({before[j] + 1, now[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], two_before[j - 2] + 1);
    }
  }
  return now[b.size()];
}

}  // namespace annulus
