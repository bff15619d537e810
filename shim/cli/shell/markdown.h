// Fits documents to a terminal that is narrower than their lines. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cube::cli {

// Returns the text of a document with paragraphs and list items refilled to `width` columns. Breaks
// the rows of tables at spaces. Leaves code and headings unchanged.
std::string filled(std::string_view markdown, std::size_t width);

}  // namespace cube::cli
