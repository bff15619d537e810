// How the announcements of clients are taken: order, epochs, fairness, bounds, and messages that no
// client should send.
#include "prefetch/order/announced/announced_orders.h"

#include <cstring>
#include <map>

#include "tests/prefetch/announce_client.h"

namespace cube::prefetch::testing {
namespace {

using Names = std::vector<std::string>;

Names numbered(const std::string& before, std::size_t count) {
  Names names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(before + std::to_string(i));
  return names;
}

struct Orders : ::testing::Test {
  AnnouncedOrders orders{{"/data", "/more"}};

  void say(std::size_t slot, const std::vector<std::string>& messages) {
    for (const auto& message : messages) EXPECT_STREQ(orders.take(slot, message), nullptr);
  }
  void open(std::size_t slot, const std::string& base = "/data") {
    ASSERT_TRUE(orders.add(slot));
    say(slot, {hello(), begin(0, base)});
  }
  Names take(std::size_t most = SIZE_MAX) {
    Names names;
    PlannedFile file;
    while (names.size() < most && orders.next(file)) names.push_back(file.path);
    return names;
  }
  std::uint64_t taken(std::size_t slot) const { return orders.state(slot).news.sequence; }
};

TEST_F(Orders, PathsComeInTheirOrder) {
  open(5, "/data/train");
  say(5,
      {paths(0, 0, {"a/1.jpg", "/data//x/./2.jpg", "../3.jpg"}), paths(0, 3, {"/more/4"}), end(0)});
  const Names expected{"/data/train/a/1.jpg", "/data/x/2.jpg", "/data/3.jpg", "/more/4"};
  PlannedFile file;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto reader = file.reader;
    ASSERT_TRUE(orders.next(file));
    EXPECT_EQ(file.path, expected[i]);
    EXPECT_EQ(file.sequence, i);
    EXPECT_NE(file.reader, 0U);
    EXPECT_TRUE(i == 0 || file.reader == reader);
    EXPECT_EQ(taken(5), i + 1);
  }
  EXPECT_FALSE(orders.next(file));
}

TEST_F(Orders, AcceptABaseThatIsNotNormal) {
  open(0, "/data//x/../../more/.");
  say(0, {paths(0, 0, {"a"}), begin(1, "/data/.."), paths(1, 0, {"etc/b", "data/c"})});
  EXPECT_EQ(take(), Names{"/data/c"});
  open(1, "//data//x/");
  say(1, {paths(0, 0, {"a"}), paths(0, 1, {"../../etc/passwd"})});
  EXPECT_EQ(take(), Names{"/data/x/a"});
  open(2, "/");
  say(2, {paths(0, 0, {"more/a", "/data/b"})});
  EXPECT_EQ(take(), (Names{"/more/a", "/data/b"}));
}

TEST_F(Orders, SequenceNumbersMayStartAnywhereAndSkipAhead) {
  open(0);
  say(0, {paths(0, 40, {"40", "41"}), paths(0, 50, {"50"})});
  EXPECT_EQ(take(1), Names{"/data/40"});
  EXPECT_EQ(taken(0), 41U);
  EXPECT_EQ(take(), (Names{"/data/41", "/data/50"}));
  EXPECT_EQ(taken(0), 51U);
}

TEST_F(Orders, ANewEpochDropsTheOlder) {
  open(0);
  say(0, {paths(0, 0, {"a", "b", "c"})});
  PlannedFile file;
  ASSERT_TRUE(orders.next(file));
  const auto before = file.sequence;
  say(0, {begin(5, "/more"), paths(5, 0, {"x"})});
  EXPECT_EQ(orders.state(0).news.epoch, 5U);
  EXPECT_FALSE(orders.state(0).has_news);
  ASSERT_TRUE(orders.next(file));
  EXPECT_EQ(file.path, "/more/x");
  EXPECT_GT(file.sequence, before);
  EXPECT_TRUE(orders.state(0).has_news);
  EXPECT_EQ(take(), Names{});
}

TEST_F(Orders, EndMayDropTheRemainingPaths) {
  open(0);
  say(0, {paths(0, 0, {"a", "b"}), end(0)});
  EXPECT_EQ(take(1), Names{"/data/a"});
  say(0, {begin(1), paths(1, 0, {"/data/c", "/data/d"})});
  EXPECT_EQ(take(1), Names{"/data/c"});
  say(0, {end(1, k_end_drops)});
  EXPECT_EQ(take(), Names{});
}

TEST_F(Orders, GoodbyeKeepsPathsAndDeathDropsThem) {
  open(0);
  open(1);
  say(0, {paths(0, 0, {"a", "b"}), bye()});
  say(1, {paths(0, 0, {"x", "y"})});
  PlannedFile file;
  ASSERT_TRUE(orders.next(file));
  orders.remove(0);
  orders.remove(1);
  EXPECT_FALSE(orders.add(0)) << "its paths are not handed on yet";
  EXPECT_EQ(take(), file.path == "/data/a" ? Names{"/data/b"} : (Names{"/data/a", "/data/b"}));
  EXPECT_TRUE(orders.add(0));
  EXPECT_TRUE(orders.add(1));
}

TEST_F(Orders, NeverReuseTheNumberOfAReader) {
  std::vector<std::uint32_t> readers;
  for (int i = 0; i < 5; ++i) {
    open(9);
    say(9, {paths(0, 0, {"a"})});
    PlannedFile file;
    ASSERT_TRUE(orders.next(file));
    EXPECT_EQ(std::count(readers.begin(), readers.end(), file.reader), 0) << file.reader;
    readers.push_back(file.reader);
    orders.settled(readers.front(), 1);  // settles a file of a reader that has gone, which has no
                                         // effect
    orders.remove(9);
  }
}

TEST_F(Orders, RanksAreServedAlike) {
  constexpr std::size_t k_ranks = 8;
  for (std::size_t slot = 0; slot < k_ranks; ++slot) {
    open(slot * 7);
    say(slot * 7, {paths(0, 0, numbered("", 300))});
  }
  std::map<std::uint32_t, unsigned> given;
  PlannedFile file;
  for (int i = 0; i < 80 && orders.next(file); ++i) ++given[file.reader];
  ASSERT_EQ(given.size(), k_ranks);
  for (const auto& [reader, count] : given) EXPECT_EQ(count, 10U) << reader;

  // One reader reads nothing, so the others get its share.
  const std::uint32_t still = given.begin()->first;
  for (const auto& [reader, count] : given) {
    if (reader != still) orders.settled(reader, 10);
  }
  for (int i = 0; i < 70; ++i) {
    ASSERT_TRUE(orders.next(file));
    EXPECT_NE(file.reader, still);
  }
  // When the others are equally far ahead, this reader gets its share again.
  given.clear();
  for (std::size_t i = 0; i < k_ranks && orders.next(file); ++i) ++given[file.reader];
  EXPECT_EQ(given[still], 1U);
}

TEST_F(Orders, ReportPathsOutsideOnce) {
  open(0, "");
  say(0, {paths(0, 0, {"/elsewhere/a", "/datax/b", "relative", "/data/../etc/c", "/data/good"})});
  EXPECT_EQ(take(), Names{"/data/good"});
  EXPECT_EQ(orders.take_refusals(),
            (Names{"announced by the job: 3 entries are outside CUBESHIM_PREFIXES, the first is "
                   "/elsewhere/a",
                   "announced by the job: 1 entry is not understood, the first is relative"}));
  say(0, {paths(0, 5, {"/elsewhere/d", "/data/" + std::string(5000, 'x'), "/data/good"})});
  EXPECT_EQ(take(), Names{"/data/good"});
  EXPECT_EQ(taken(0), 8U);
  const Names told = orders.take_refusals();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].starts_with("announced by the job: 1 entry is longer than PATH_MAX allows"))
      << told[0];
}

TEST_F(Orders, AClientIsBounded) {
  open(0);
  // The bound also holds for messages with one path. Each of them is small compared with the memory
  // block that stores it.
  for (const std::size_t count : {1, 500}) {
    std::size_t bytes = 0;
    std::uint64_t first = count == 1 ? 0 : 10'000'000;
    while (!orders.state(0).is_full) {
      const std::string message = paths(0, first, numbered(std::string(60, 'x'), count));
      ASSERT_STREQ(orders.take(0, message), nullptr);
      first += 2 * count;  // leaves a gap each time, so that no message joins the previous one
      bytes += message.size();
      ASSERT_LE(bytes, 512U << 10);
    }
    EXPECT_GE(bytes, 200U << 10);
    EXPECT_GT(take().size(), 2000U);
    EXPECT_FALSE(orders.state(0).is_full);
  }
}

TEST_F(Orders, ReadyIsReportedOnceAfterEachEmptyCall) {
  EXPECT_FALSE(orders.has_become_ready());
  open(0);
  EXPECT_FALSE(orders.has_become_ready());
  say(0, {paths(0, 0, {"a"})});
  EXPECT_TRUE(orders.has_become_ready());
  EXPECT_FALSE(orders.has_become_ready());
  EXPECT_EQ(take().size(), 1U);  // and one call that finds nothing
  EXPECT_FALSE(orders.has_become_ready());
  say(0, {paths(0, 1, {"b"})});
  EXPECT_TRUE(orders.has_become_ready());
}

std::string with_type(std::uint32_t type, std::string message) {
  std::memcpy(message.data(), &type, sizeof type);
  return message;
}

struct Hostile {
  const char* name;
  std::vector<std::string> before;
  std::string message;
  const char* why;
};

TEST_F(Orders, RefuseInvalidMessages) {
  HelloMessage magic, version, odd;
  magic.magic = 1;
  version.version = 2;
  odd.zero = 7;
  PathsMessage miscounted;
  miscounted.count = 3;
  PathsMessage beyond;
  beyond.count = 1;
  beyond.first = UINT64_MAX;
  BeginMessage odd_begin;
  odd_begin.zero = 1;
  const std::vector<std::string> open{hello(), begin(4, "/data")};
  const std::vector<Hostile> all{
      {"nothing", {}, "", "cut off"},
      {"garbage", {}, "GET / HTTP/1.1\r\n\r\n", "no known type"},
      {"three bytes", {}, "\1\0\0", "cut off"},
      {"another magic", {}, bytes_of(magic), "does not speak"},
      {"another version", {}, bytes_of(version), "another version"},
      {"odd bits", {}, bytes_of(odd), "bits"},
      {"half a hello", {}, hello().substr(0, 20), "cut off"},
      {"a long hello", {}, hello() + "x", "cut off"},
      {"no hello", {}, begin(0), "out of order"},
      {"two hellos", {hello()}, hello(), "out of order"},
      {"a server's word", open, with_type(6, bytes_of(TakenMessage{})), "no known type"},
      {"type 0", open, with_type(0, bye()), "no known type"},
      {"half a begin", {hello()}, begin(0).substr(0, 12), "cut off"},
      {"odd bits of a begin", {hello()}, bytes_of(odd_begin), "bits"},
      {"a relative base", {hello()}, begin(0, "data"), "not an absolute path"},
      {"a base with a zero",
       {hello()},
       begin(0, std::string_view("/a\0b", 4)),
       "not an absolute path"},
      {"a long base", {hello()}, begin(0, "/" + std::string(5000, 'x')), "not an absolute path"},
      {"the same epoch", open, begin(4), "epochs"},
      {"an older epoch", open, begin(3), "epochs"},
      {"paths before an epoch", {hello()}, paths(0, 0, {"a"}), "that is not open"},
      {"paths of another epoch", open, paths(5, 0, {"a"}), "that is not open"},
      {"paths after the end", {hello(), begin(4), end(4)}, paths(4, 0, {"a"}), "that is not open"},
      {"numbers that go back",
       {hello(), begin(4), paths(4, 3, {"a"})},
       paths(4, 3, {"a"}),
       "sequence numbers"},
      {"no path", open, paths(4, 0, {}), "cut off"},
      {"an empty path", open, paths(4, 0, {"a", "", "b"}), "empty"},
      {"an empty first path", open, paths(4, 0, {"", "b"}), "empty"},
      {"a path without an end", open, paths(4, 0, {"a"}) + "b", "cut off"},
      {"a wrong count", open, bytes_of(miscounted, std::string_view("a\0", 2)), "miscounted"},
      {"numbers that turn over", open, bytes_of(beyond, std::string_view("a\0", 2)), "too large"},
      {"a long message", open, paths(4, 0, {std::string(k_longest_message, 'x')}), "too long"},
      {"two ends", {hello(), begin(4), end(4)}, end(4), "that is not open"},
      {"the end of another epoch", open, end(9), "that is not open"},
      {"an end with odd bits", open, end(4, 6), "bits"},
      {"a long goodbye", open, bye() + "x", "cut off"},
      {"more after a goodbye", {hello(), bye()}, begin(7), "after its goodbye"},
  };
  for (const auto& hostile : all) {
    SCOPED_TRACE(hostile.name);
    ASSERT_TRUE(orders.add(0));
    say(0, hostile.before);
    const char* const why = orders.take(0, hostile.message);
    EXPECT_NE(std::string(why == nullptr ? "" : why).find(hostile.why), std::string::npos)
        << (why == nullptr ? "taken" : why);
    orders.remove(0);
    EXPECT_EQ(take(), Names{});
  }
}

}  // namespace
}  // namespace cube::prefetch::testing
