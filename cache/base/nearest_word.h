// Finds the word that the user may have meant. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace cube::base {

// The candidate with the smallest edit distance from `word`; if several are equally near, the
// first. Empty if the distance of every candidate is at least three, or at least half the
// candidate's length.
std::string_view nearest_word(std::string_view word,
                              const std::vector<std::string_view>& candidates);

}  // namespace cube::base
