#include "cache/base/nearest_word.h"

#include <algorithm>
#include <utility>

namespace cube::base {
namespace {

// The number of edits that turn `a` into `b`. An edit changes, adds or removes a character, or
// swaps two adjacent characters.
std::size_t distance(std::string_view a, std::string_view b) {
  // Each row contains the distances from one prefix of `a` to all prefixes of `b`: `row` for the
  // current prefix, `old` and `older` for the two prefixes before it.
  std::vector<std::size_t> older, old, row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    older = std::exchange(old, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({old[j] + (a[i] == b[j] ? 0 : 1), row[j] + 1, old[j + 1] + 1});
      const bool is_exchanged = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (is_exchanged) row[j + 1] = std::min(row[j + 1], older[j - 1] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_word(std::string_view word,
                              const std::vector<std::string_view>& candidates) {
  constexpr std::size_t k_longest = 64, k_far = 3;
  if (word.size() > k_longest) return {};
  std::string_view nearest;
  std::size_t least = k_far;
  for (const std::string_view candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    // The distance cannot be smaller than the difference of the lengths.
    if (longer - std::min(word.size(), candidate.size()) >= least) continue;
    const std::size_t d = distance(word, candidate);
    if (d >= least || 2 * d >= candidate.size()) continue;
    least = d;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace cube::base
