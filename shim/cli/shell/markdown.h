// Fits documents to a terminal that is narrower than their lines. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cube::cli {

// The text of a document, with its paragraphs and list items refilled to `width` columns. Rows of
// tables are broken at spaces; code and headings stay as they are.
std::string filled(std::string_view markdown, std::size_t width);

}  // namespace cube::cli
