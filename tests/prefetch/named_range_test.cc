// Entries that name a part of a file.
#include "prefetch/order/named_range.h"

#include <gtest/gtest.h>

namespace cube::prefetch {
namespace {

using Kind = NamedRange::Kind;

TEST(NamedRange, ValidRangesAreParsed) {
  const struct {
    const char *text, *path;
    std::uint64_t begin, end;
  } rows[] = {
      {"/a@0+1", "/a", 0, 1},
      {"/a@5+10", "/a", 5, 15},
      {"a@1K+1M", "a", 1024, 1024 + (1 << 20)},
      {"/a@b@2G+1", "/a@b", 2ULL << 30, (2ULL << 30) + 1},
      {"/a@1+2@3+4", "/a@1+2", 3, 7},
      {"/d@1+2/f@3KiB+4B", "/d@1+2/f", 3072, 3076},
  };
  for (const auto& row : rows) {
    const NamedRange named = named_range(row.text);
    EXPECT_EQ(named.kind, Kind::good) << row.text;
    EXPECT_EQ(named.path, row.path);
    EXPECT_EQ(named.range.begin, row.begin) << row.text;
    EXPECT_EQ(named.range.end, row.end) << row.text;
  }
}

TEST(NamedRange, MalformedRangesAreRejected) {
  for (const char* const text :
       {"/a@+", "/a@5+", "/a@+5", "/a@5+0", "/a@-1+5", "/a@1.5+2", "/a@1+2+3", "/a@16777216T+1",
        "/a@1+2-3", "/a@18446744073709551615+1", "/a@1Q+1"}) {
    const Kind kind = named_range(text).kind;
    // A letter that is not a unit makes the text a name.
    EXPECT_EQ(kind,
              std::string_view(text).find('Q') == std::string_view::npos ? Kind::wrong : Kind::none)
        << text;
  }
}

TEST(NamedRange, OtherTextIsAName) {
  for (const char* const text :
       {"", "/a", "@1+2", "/@1+2", "/a@1", "/a@", "/a@1+2/b", "/a@1+x", "user@host+1", "/a+1@2"})
    EXPECT_EQ(named_range(text).kind, Kind::none) << text;
}

TEST(NamedRange, SurvivesARoundTripThroughText) {
  EXPECT_EQ(text_of_range("/a", {}), "/a");
  EXPECT_EQ(text_of_range("/a", {5, 15}), "/a@5+10");
}

}  // namespace
}  // namespace cube::prefetch
