// The parts of the S3 client that need no server. tests/cli/test_bucket.py tests whole requests and
// all faults of a store.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "prefetch/object/s3/client.h"
#include "prefetch/object/s3/digest.h"
#include "prefetch/object/s3/pace.h"
#include "prefetch/object/s3/place.h"
#include "prefetch/object/s3/whole_object.h"
#include "prefetch/object/s3/xml.h"

namespace cube::s3 {
namespace {

TEST(S3Digest, HasTheValuesOfTheStandards) {
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(md5("message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
  // RFC 4231, cases 2 and 6: a short key, and a key longer than a block.
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  // The check values from the catalogue of CRCs, and the values of a text that is longer than one
  // round of the loop.
  EXPECT_EQ(checksum("crc32", "123456789"), base64("\xcb\xf4\x39\x26"));
  EXPECT_EQ(checksum("crc32c", "123456789"), base64("\xe3\x06\x92\x83"));
  EXPECT_EQ(checksum("crc64nvme", "123456789"), base64("\xae\x8b\x14\x86\x0a\x79\x98\x88"));
  EXPECT_EQ(crc64ecma("123456789"), 0x995dc9bbdf1939faU);
  EXPECT_EQ(checksum("md4", ""), std::nullopt);
  EXPECT_EQ(base64("a") + base64("ab") + base64("abc") + base64(""), "YQ==YWI=YWJj");
}

// Computes the CRC one bit at a time.
template <typename Word>
Word plain_crc(Word polynomial, std::string_view bytes) {
  Word crc = ~Word{0};
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
  }
  return ~crc;
}

TEST(S3Digest, CrcIsRightAtEachLengthAndAlignment) {
  const Crc<std::uint32_t> crc32c(0x82f63b78U);
  const Crc<std::uint64_t> crc64nvme(0x9a6c9329ac4bc9b5ULL);
  std::string text;
  for (unsigned i = 0; i < 700; ++i) text += static_cast<char>(i * i * 7 + i);
  for (std::size_t first = 0; first < 16; ++first) {
    for (std::size_t bytes = 0; bytes + first <= text.size(); bytes += 1 + first) {
      const std::string_view part = std::string_view(text).substr(first, bytes);
      ASSERT_EQ(crc32c.of(part), plain_crc<std::uint32_t>(0x82f63b78U, part)) << bytes;
      ASSERT_EQ(crc64nvme.of(part), plain_crc<std::uint64_t>(0x9a6c9329ac4bc9b5ULL, part)) << bytes;
    }
  }
}

TEST(S3Sign, EncodesAndSortsTheQuery) {
  EXPECT_EQ(canonical_query({{"prefix", "a b+c/ü*~"}, {"list-type", "2"}, {"list", ""}}),
            "list=&list-type=2&prefix=a%20b%2Bc%2F%C3%BC%2A~");
}

TEST(S3Pace, HalvesOnceForEachRoundAndGrowsByOne) {
  InFlightLimit limit(100);
  EXPECT_EQ(limit.now(), 64U);
  limit.note_slow_down(/*started_ns=*/10, /*now_ns=*/20);
  EXPECT_EQ(limit.now(), 32U);
  limit.note_slow_down(15, 21);  // sent before the cut
  EXPECT_EQ(limit.now(), 32U);
  for (int i = 0; i < 33; ++i) limit.note_success();
  EXPECT_EQ(limit.now(), 33U);
  for (std::uint64_t i = 1; i < 20; ++i) limit.note_slow_down(100 * i, 100 * i);
  EXPECT_EQ(limit.now(), 1U);
}

TEST(S3Pace, BacksOffWithFullJitterUpToFiveSeconds) {
  EXPECT_EQ(backoff_ms(0, 0.5), 50U);
  EXPECT_EQ(backoff_ms(3, 0.5), 400U);
  EXPECT_EQ(backoff_ms(70, 0.5), 2500U);
  EXPECT_EQ(backoff_ms(3, 0), 0U);
  EXPECT_EQ(retry_after_ms("120"), 120'000U);
  EXPECT_EQ(retry_after_ms("Fri, 31 Dec 1999 23:59:59 GMT"), 0U);
}

std::string url_of(const char* endpoint, const char* region, std::string_view bucket,
                   base::S3Addressing addressing = base::S3Addressing::automatic) {
  Place place;
  place.endpoint = endpoint;
  place.region = region;
  place.addressing = addressing;
  return place.request(bucket, "a b").url();
}

TEST(S3Place, NamesTheBucketInTheHostOrInThePath) {
  EXPECT_EQ(url_of("", "", "b"), "https://b.s3.amazonaws.com/a%20b");
  EXPECT_EQ(url_of("", "cn-north-1", "b"), "https://b.s3.cn-north-1.amazonaws.com.cn/a%20b");
  EXPECT_EQ(url_of("", "eu-west-1", "b.c"), "https://s3.eu-west-1.amazonaws.com/b.c/a%20b");
  EXPECT_EQ(url_of("http://10.0.0.1", "", "b"), "http://10.0.0.1/b/a%20b");
  EXPECT_EQ(url_of("http://[::1]:9000/", "", "b"), "http://[::1]:9000/b/a%20b");
  EXPECT_EQ(url_of("https://store.example:443/base/", "", "b"),
            "https://store.example/base/b/a%20b");
  EXPECT_EQ(url_of("https://oss.example", "", "b"), "https://b.oss.example/a%20b");
  EXPECT_EQ(url_of("https://oss.example", "", "b", base::S3Addressing::path),
            "https://oss.example/b/a%20b");
}

TEST(S3Xml, GivesPathsAndTextsAndRefusesMalformedText) {
  XmlReader reader("<a x=\"1>2\"><n:b xmlns:n='u'>1&lt;<![CDATA[&amp;]]></n:b><c/></a>");
  std::string seen;
  while (reader.next()) seen += reader.path() + "=" + reader.text() + " ";
  EXPECT_EQ(seen, "a/b=1<&amp; a/c= a= ");
  EXPECT_TRUE(reader.is_sound());
  for (const char* const text : {"<a><b></a></b>", "<a>", "<a></a><b/>", "<a>&#0;</a>",
                                 "<a>&#x110000;</a>", "<a>&lt</a>", "</a>", "<a", "text"}) {
    XmlReader bad(text);
    while (bad.next()) {
    }
    EXPECT_FALSE(bad.is_sound()) << text;
  }
}

TEST(S3WholeObject, SinkWithoutRoomEndsTheFetchBeforeARequest) {
  struct FullSink final : ObjectSink {
    int begin(const Outcome& /*first*/) override { return ENOSPC; }
    std::byte* room(std::uint64_t /*first*/, std::size_t /*bytes*/) override { return nullptr; }
    int take(std::uint64_t /*first*/, std::size_t /*bytes*/) override { return 0; }
  };
  KeptCredentials credentials([](std::string&) { return base::fail(EACCES); });
  Client client({}, credentials, {});
  int error = 0;
  get_whole(client, "bucket", "key", std::make_shared<FullSink>(),
            {.version = WholeOptions::Version{.size = 20 << 20, .modified = 1, .etag = "e"}},
            [&](Outcome& outcome) { error = outcome.error; });
  EXPECT_EQ(error, ENOSPC);
  EXPECT_TRUE(client.is_idle());
}

TEST(S3WholeObject, EndsWithoutARequestIfTheSinkHasAllRanges) {
  struct FilledSink final : ObjectSink {
    int begin(const Outcome& /*first*/) override { return 0; }
    std::byte* room(std::uint64_t /*first*/, std::size_t /*bytes*/) override { return nullptr; }
    bool has(std::uint64_t first, std::size_t bytes) override {
      EXPECT_EQ(first, std::exchange(end, first + bytes));
      return true;
    }
    int take(std::uint64_t /*first*/, std::size_t /*bytes*/) override { return 0; }
    std::uint64_t end = 0;
  };
  KeptCredentials credentials([](std::string&) { return base::fail(EACCES); });
  Client client({}, credentials, {});
  constexpr std::uint64_t k_size = (100 << 20) + 1;  // more than the ranges in flight at a time
  const auto sink = std::make_shared<FilledSink>();
  int ends = 0;
  get_whole(client, "bucket", "key", sink,
            {.version = WholeOptions::Version{.size = k_size, .modified = 1, .etag = "e"}},
            [&](Outcome& outcome) {
              EXPECT_EQ(outcome.error, 0);
              ++ends;
            });
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(sink->end, k_size);
  EXPECT_TRUE(client.is_idle());
}

TEST(S3Time, IsReadWithItsFractionAndZone) {
  constexpr std::time_t k_five_past_two = 1795745100;  // 2026-11-27T02:05:00Z
  for (const char* const zone : {"Z", "", ".123Z", "+00:00", ".5"})
    EXPECT_EQ(parse_iso_time(std::string("2026-11-27T02:05:00") + zone), k_five_past_two) << zone;
  EXPECT_EQ(parse_iso_time("2026-11-27T02:05:00-05:00"), k_five_past_two + 5 * 3600);
  EXPECT_EQ(parse_iso_time("2026-11-27T02:05:00.123-0500"), k_five_past_two + 5 * 3600);
  EXPECT_EQ(parse_iso_time("2026-11-27T02:05:00+05:30"), k_five_past_two - 5 * 3600 - 30 * 60);
  EXPECT_EQ(parse_iso_time("2026-11-27T02:05:00+02"), k_five_past_two - 2 * 3600);
  EXPECT_EQ(parse_iso_time("tomorrow"), 0);
}

TEST(KeptCredentials, AreRenewedAheadAndKeptIfThatFails) {
  std::atomic<int> looks = 0;
  std::atomic<bool> is_failing = false;
  KeptCredentials kept([&](std::string& why) -> base::Result<Credentials> {
    ++looks;
    if (is_failing) {
      why = "gone";
      return base::fail(EACCES);
    }
    return Credentials{.access_key = std::to_string(looks), .expires = 1000 * looks};
  });
  EXPECT_EQ(kept.current(0)->access_key, "1");
  EXPECT_EQ(kept.current(300)->access_key, "1");
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(kept.current(500)->access_key, "1");  // starts a renewal, without waiting
  EXPECT_EQ(kept.current(990)->access_key, "2");  // waits for it
  is_failing = true;
  EXPECT_EQ(kept.current(1900)->access_key, "2");
  EXPECT_EQ(kept.current(1990)->access_key, "2");
  EXPECT_EQ(kept.why(), "gone");
  is_failing = false;
  kept.refused(Credentials{.access_key = "other"});
  kept.refused(*kept.current(1990));
  const int before = looks;
  EXPECT_EQ(kept.current(1990)->access_key, std::to_string(before + 1));
}

TEST(KeptCredentials, AreSearchedForOnlyNowAndThenIfNoneAreFound) {
  int looks = 0;
  KeptCredentials kept([&](std::string& why) -> base::Result<Credentials> {
    ++looks;
    why = "none";
    return base::fail(EACCES);
  });
  for (std::time_t now = 100; now < 110; ++now) {
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(kept.current(now));
    EXPECT_EQ(kept.why(), "none");
  }
  EXPECT_EQ(looks, 1);
  EXPECT_FALSE(kept.current(110));
  EXPECT_EQ(looks, 2);
  EXPECT_FALSE(kept.current(50));  // the clock was set back
  EXPECT_EQ(looks, 3);
}

TEST(KeptCredentials, AreSearchedForOnlyNowAndThenIfTheSameAreFound) {
  int looks = 0;
  std::string key = "old";
  KeptCredentials kept([&](std::string&) -> base::Result<Credentials> {
    ++looks;
    return Credentials{.access_key = key, .expires = key == "old" ? 50 : 0};
  });
  // Expired keys are used nevertheless, because this machine's clock might be wrong.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(kept.current(100)->access_key, "old");
  EXPECT_EQ(looks, 1);
  for (int i = 0; i < 100; ++i) {
    kept.refused(*kept.current(101));
    EXPECT_EQ(kept.current(101)->access_key, "old");
  }
  EXPECT_EQ(looks, 2);
  key = "new";
  EXPECT_EQ(kept.current(111)->access_key, "new");
  // The next refusal is answered by a search at once.
  key = "newer";
  kept.refused(*kept.current(112));
  EXPECT_EQ(kept.current(112)->access_key, "newer");
  EXPECT_EQ(looks, 4);
}

}  // namespace
}  // namespace cube::s3
