// A question to a reader, and the reader's answer in the format of reader.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/preload/freshness/mutator/words.h"

namespace cube::mutator {

struct Ask {
  std::string what{}, path{};
  std::uint64_t chunk = 0, first = 0, words = 0, slot = 0;

  bool is_of_kept() const { return what == "kept-read" || what == "kept-stat" || what == "drop"; }
  std::string text() const;
};

struct Answer {
  std::int64_t begin = 0, end = 0;
  std::string text;                      // without the times
  char kind = '?';                       // E D A T L Y, as the first letter of the text
  std::string error;                     // E: its name
  std::uint64_t size = 0;                // D: bytes
  Runs runs;                             // D
  std::optional<Attributes> attributes;  // A, and D by `read`
  std::string target;                    // T
  std::vector<std::string> names;        // L
  std::vector<Answer> entries;           // L by `scan`
};

Answer parse_answer(const std::string& line);

}  // namespace cube::mutator
