// Finds the word that somebody may have meant. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace cube::base {

// The first of the candidates with the fewest characters to change, add or remove to make `word`
// into it. Empty: none needs fewer than three, and fewer than half of its own.
std::string_view nearest_word(std::string_view word,
                              const std::vector<std::string_view>& candidates);

}  // namespace cube::base
