// How lines of the library's log are folded on a terminal.
#include "cache/base/fold_lines.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

namespace cube::base {
namespace {

// `spare` bytes follow the text in the buffer.
std::string folded(std::string_view text, std::size_t columns, std::size_t spare = 200) {
  std::string room(text);
  room.resize(text.size() + spare, '#');
  room.resize(fold_lines(room, text.size(), columns));
  return room;
}

TEST(FoldLines, BreaksBetweenWordsAndIndentsContinuationLines) {
  EXPECT_EQ(folded("cubeshim: one two three four five six seven eight\ncubeshim: short\n", 40),
            "cubeshim: one two three four five six\n"
            "          seven eight\n"
            "cubeshim: short\n");
}

TEST(FoldLines, ALineMayFillTheTerminal) {
  const std::string line = "cubeshim: " + std::string(20, 'x') + " " + std::string(9, 'y') + "\n";
  EXPECT_EQ(folded(line, 40), line);
  EXPECT_EQ(folded("cubeshim: " + std::string(20, 'x') + " " + std::string(10, 'y') + "\n", 40),
            "cubeshim: " + std::string(20, 'x') + "\n          " + std::string(10, 'y') + "\n");
}

TEST(FoldLines, AWordThatFillsARowStaysWhole) {
  const std::string path(50, 'p');
  EXPECT_EQ(folded("cubeshim: warn: " + path + " is gone\n", 40),
            "cubeshim: warn:\n          " + path + "\n          is gone\n");
}

TEST(FoldLines, CountsCharactersAndRestartsAfterACarriageReturn) {
  std::string letters;
  for (int i = 0; i < 20; ++i) letters += "\u540d";
  const std::string line = "\x1b[2K\rcubeshim: " + letters + " 123456789\n";
  EXPECT_EQ(folded(line, 40), line);
}

TEST(FoldLines, StaysWithinItsBufferAndDoesNotFoldForNarrowTerminals) {
  const std::string words = "cubeshim: one two three four five six seven eight\n";
  EXPECT_EQ(folded(words, 40, 9), words);
  EXPECT_EQ(folded(words, 40, 10).size(), words.size() + 10);
  EXPECT_EQ(folded(words, 39), words);
  EXPECT_EQ(folded(words, 0), words) << "no terminal";
  EXPECT_EQ(folded("", 40), "");
}

}  // namespace
}  // namespace cube::base
