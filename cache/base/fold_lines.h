// Folds lines for a terminal, in the buffer that holds them. Thread-safe. It allocates nothing.
#pragma once

#include <cstddef>
#include <span>

namespace cube::base {

// Breaks the first `size` bytes of `room` between words, into lines of at most `columns` columns; a
// longer word has a line of its own. Continued text is indented to the first letter after
// "cubeshim: ". Returns the new size. A line is left unbroken if `room` has no space for a break,
// or if the terminal is too narrow.
std::size_t fold_lines(std::span<char> room, std::size_t size, std::size_t columns);

}  // namespace cube::base
