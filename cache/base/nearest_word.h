// Finds the word that the user may have meant. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace cube::base {

// Returns the candidate with the smallest edit distance from `word`; if several are equally near,
// the first of them. A candidate is too far if its distance is three or more, or at least half its
// length. Empty: every candidate is too far.
std::string_view nearest_word(std::string_view word,
                              const std::vector<std::string_view>& candidates);

}  // namespace cube::base
