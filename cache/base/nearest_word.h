// Finds the word that the user may have meant. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace cube::base {

// The candidate with the smallest edit distance from `word`, and the first of several such. Empty:
// each candidate's distance is three or more, or at least half its own length.
std::string_view nearest_word(std::string_view word,
                              const std::vector<std::string_view>& candidates);

}  // namespace cube::base
