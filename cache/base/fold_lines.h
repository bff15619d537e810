// Folds long lines for a terminal, in place. Thread-safe. Allocates nothing.
#pragma once

#include <cstddef>
#include <span>

namespace cube::base {

// Breaks the text in the first `size` bytes of `room` into lines of at most `columns` columns.
// Breaks lines only between words, so a line with a long word can be longer. Indents each
// continuation line by the width of "cubeshim: ". Returns the new size. Breaks no line if the
// terminal is too narrow, and no further line if `room` is full.
std::size_t fold_lines(std::span<char> room, std::size_t size, std::size_t columns);

}  // namespace cube::base
