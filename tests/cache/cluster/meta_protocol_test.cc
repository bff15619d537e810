#include "cache/tier/cluster/meta_protocol.h"

#include <gtest/gtest.h>

namespace cube::cache {
namespace {

using Kind = MetaAnswer::Kind;

TEST(MetaProtocol, AnswersOfARealServerAreParsed) {
  const MetaAnswer value = parse_meta_answer("VA 512 c18446744073709551615 O1f");
  EXPECT_EQ(value.kind, Kind::value);
  EXPECT_EQ(value.size, 512U);
  EXPECT_EQ(value.cas, UINT64_MAX);
  EXPECT_TRUE(value.has_token && value.has_cas && value.has_size);
  EXPECT_EQ(value.token, 0x1fU);
  EXPECT_FALSE(value.is_won || value.is_taken);
  EXPECT_TRUE(parse_meta_answer("VA 0 c1 O0 W").is_won);
  EXPECT_TRUE(parse_meta_answer("VA 0 c1 O0 Z").is_taken);
  EXPECT_EQ(parse_meta_answer("HD").kind, Kind::done);
  EXPECT_EQ(parse_meta_answer("HD s7 c9 O2").size, 7U);
  EXPECT_EQ(parse_meta_answer("EN").kind, Kind::none);
  EXPECT_EQ(parse_meta_answer("NF O1").kind, Kind::none);
  EXPECT_EQ(parse_meta_answer("NS O1").kind, Kind::refused);
  EXPECT_EQ(parse_meta_answer("EX O1").kind, Kind::refused);
  EXPECT_EQ(parse_meta_answer("SERVER_ERROR out of memory storing object").kind, Kind::full);
  EXPECT_EQ(parse_meta_answer("SERVER_ERROR Out of memory during read").kind, Kind::full);
  EXPECT_EQ(parse_meta_answer("SERVER_ERROR object too large for cache").kind, Kind::too_large);
  EXPECT_EQ(parse_meta_answer("CLIENT_ERROR bad command line format").kind, Kind::error);
  EXPECT_EQ(parse_meta_answer("ERROR Too many open connections").kind, Kind::error);
  EXPECT_EQ(parse_meta_answer("STORED").kind, Kind::stored);
  EXPECT_EQ(parse_meta_answer("END").kind, Kind::end);
  const MetaAnswer figure = parse_meta_answer("STAT limit_maxbytes 67108864");
  EXPECT_EQ(figure.kind, Kind::figure);
  EXPECT_EQ(figure.name, "limit_maxbytes");
  EXPECT_EQ(figure.text, "67108864");
}

TEST(MetaProtocol, MalformedAnswersAreUnknown) {
  for (const char* const line : {"", " ", "VA", "VA ", "VA x", "VA -1 O0", "VA 1 cx", "VA 1 O",
                                 "VA 99999999999999999999999 O1", "HD c", "HD Og", "STAT", "va 1",
                                 "VALUE k 0 1", "VA 1 c1x", "\x01"}) {
    EXPECT_EQ(parse_meta_answer(line).kind, Kind::unknown) << '"' << line << '"';
  }
  EXPECT_EQ(parse_meta_answer("VA 1 q k O1").kind, Kind::value)
      << "flags of a later version are left out";
}

TEST(MetaProtocol, LineEndsWithCarriageReturnAndLineFeed) {
  EXPECT_EQ(meta_line_bytes("HD\r\nEN\r\n"), 4U);
  EXPECT_EQ(meta_line_bytes("\r\n"), 2U);
  for (const char* const text : {"", "HD", "HD\r", "HD\n", "\rHD\n"})
    EXPECT_EQ(meta_line_bytes(text), 0U) << text;
}

TEST(MetaProtocol, CommandsAreOneLine) {
  EXPECT_EQ(MetaCommand::get("k", 31, 2).text(), "mg k v c O1f N2\r\n");
  EXPECT_EQ(MetaCommand::get("k", 31, 0).text(), "mg k v c O1f\r\n");
  EXPECT_EQ(MetaCommand::look("k", 1).text(), "mg k s c O1\r\n");
  EXPECT_EQ(MetaCommand::lease("key", 31, 30).text(), "mg key s c O1f N30\r\n");
  EXPECT_EQ(MetaCommand::add("k", 1, 20).text(), "ms k 20 ME O1\r\n");
  EXPECT_EQ(MetaCommand::replace("k", 1, 20, 7).text(), "ms k 20 C7 O1\r\n");
  EXPECT_EQ(MetaCommand::remove("k", 1, 7).text(), "md k C7 O1\r\n");
  const std::string longest(MetaCommand::k_longest_key, 'k');
  EXPECT_EQ(MetaCommand::replace(longest, UINT32_MAX, UINT64_MAX, UINT64_MAX).text(),
            "ms " + longest + " 18446744073709551615 C18446744073709551615 Offffffff\r\n");
}

}  // namespace
}  // namespace cube::cache
