// A list as an order. It is given once, and again if not all of its files stay in memory. It begins
// where a previous leader has stopped.
#include "prefetch/order/list_source.h"

#include <gtest/gtest.h>

#include "tests/prefetch/list_fixture.h"

namespace cube::prefetch {
namespace {

using testing::Names;

struct ListSourceTest : testing::Lists {
  bool repeats = false;
  std::unique_ptr<ListSource> source;
  std::vector<PlannedFile> given;

  void open_from(std::uint64_t from, const std::string& text) {
    write(text);
    std::string why;
    PathListOptions options;
    options.list = list;
    options.prefixes = {prefix};
    source = ListSource::open(
        options, from, [](void* of) { return *static_cast<bool*>(of); }, &repeats, why);
    ASSERT_NE(source, nullptr) << why;
  }
  // Takes names until none is left.
  Names take(std::size_t at_most = SIZE_MAX) {
    Names names;
    PlannedFile file;
    while (names.size() < at_most && source->next(file) == PathSource::Next::file) {
      names.push_back(file.path.substr(prefix.size() + 1));
      EXPECT_EQ(file.reader, ListSource::k_reader);
      EXPECT_TRUE(given.empty() || file.sequence > given.back().sequence);
      given.push_back(file);
    }
    return names;
  }
  bool is_at_end() {
    PlannedFile file;
    return source->next(file) == PathSource::Next::end;
  }
  std::string text(const Names& names) const {
    std::string all;
    for (const auto& name : names) all += in(name) + "\n";
    return all;
  }
};

TEST_F(ListSourceTest, GivesEachOnceAndThenEnds) {
  open_from(0, text({"a", "b", "c"}));
  EXPECT_EQ(take(), (Names{"a", "b", "c"}));
  EXPECT_FALSE(is_at_end()) << "one of them may be a directory";
  EXPECT_EQ(source->dealt_with(ListSource::k_all), 3U);
  EXPECT_TRUE(source->all_is_known());
  EXPECT_TRUE(is_at_end());
  EXPECT_EQ(source->dealt_with(ListSource::k_all), ListSource::k_all);
  EXPECT_FALSE(source->all_is_known());
}

TEST_F(ListSourceTest, RepeatsFilesThatDoNotStay) {
  repeats = true;
  open_from(0, text({"a", "b"}));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(take(), (Names{"a", "b"}));
    EXPECT_TRUE(source->all_is_known());
  }
  repeats = false;
  EXPECT_EQ(take(), (Names{"a", "b"}));
  EXPECT_TRUE(source->all_is_known());
  EXPECT_TRUE(is_at_end());
}

TEST_F(ListSourceTest, EmptyListDoesNotRepeat) {
  repeats = true;
  open_from(0, "# nothing\n");
  EXPECT_EQ(take(), Names{});
  EXPECT_TRUE(source->all_is_known());
  EXPECT_TRUE(is_at_end());
}

TEST_F(ListSourceTest, ARoundIsNotOverInTheMiddle) {
  open_from(0, text({"a", "b"}));
  EXPECT_EQ(take(1), Names{"a"});
  EXPECT_FALSE(source->all_is_known());
  EXPECT_EQ(take(), Names{"b"});
}

TEST_F(ListSourceTest, DirectoriesComeWhenTheyAreKnownAsSuch) {
  make("d/x");
  make("d/y");
  open_from(0, text({"a", "d", "b"}));
  EXPECT_EQ(take(), (Names{"a", "d", "b"}));
  source->walk(given[1]);
  EXPECT_FALSE(source->all_is_known());
  EXPECT_EQ(testing::sorted(take()), (Names{"d/x", "d/y"}));
  EXPECT_TRUE(source->all_is_known());
  EXPECT_TRUE(is_at_end());
}

TEST_F(ListSourceTest, NextLeaderContinuesWhereTheLastOneStopped) {
  open_from(2, text({"a", "b", "c", "d"}));
  EXPECT_EQ(take(), (Names{"c", "d"}));
  EXPECT_EQ(source->dealt_with(ListSource::k_all), 4U);
}

TEST_F(ListSourceTest, NextLeaderStartsADirectoryAgain) {
  make("d/x");
  make("d/y");
  const std::string lines = text({"a", "d", "b"});
  open_from(0, lines);
  take();
  source->walk(given[1]);
  take(1);
  EXPECT_EQ(source->dealt_with(ListSource::k_all), 1U);
  const std::uint64_t from = source->dealt_with(ListSource::k_all);
  given.clear();
  open_from(from, lines);
  EXPECT_EQ(take(), (Names{"d", "b"}));
  source->walk(given[0]);
  EXPECT_EQ(source->dealt_with(ListSource::k_all), 1U);
  EXPECT_EQ(testing::sorted(take()), (Names{"d/x", "d/y"}));
}

// A path that ends in '/' is walked without being asked for as a file.
TEST_F(ListSourceTest, NextLeaderStartsADirectoryWithASlashAgain) {
  for (const char* const name : {"d/x", "d/y", "e/x", "e/y"}) make(name);
  open_from(0, text({"a", "d/", "b", "e/"}));
  take(2);
  EXPECT_EQ(source->dealt_with(ListSource::k_all), 1U) << "d is not over";
  take(2);
  EXPECT_EQ(source->dealt_with(2), 1U) << "the second file of d is not fetched yet";
  EXPECT_EQ(source->dealt_with(3), 3U);
  take();
  EXPECT_EQ(source->dealt_with(3), 3U);
  EXPECT_EQ(source->dealt_with(5), 4U);
  EXPECT_EQ(source->dealt_with(ListSource::k_all), 4U) << "e may have more files";
  open_from(4, text({"a", "d/", "b", "e/"}));
  given.clear();
  EXPECT_EQ(testing::sorted(take()), (Names{"e/x", "e/y"}));
  EXPECT_EQ(source->dealt_with(1), 4U);
  EXPECT_TRUE(source->all_is_known());
  EXPECT_EQ(source->dealt_with(ListSource::k_all), ListSource::k_all);
}

TEST_F(ListSourceTest, NextLeaderRepeatsACompletedList) {
  repeats = true;
  open_from(2, text({"a", "b"}));
  EXPECT_EQ(take(), Names{});
  EXPECT_TRUE(source->all_is_known());
  EXPECT_EQ(take(), (Names{"a", "b"}));
}

TEST_F(ListSourceTest, NextLeaderTakesPartInLaterRounds) {
  repeats = true;
  open_from(ListSource::k_all, text({"a", "b"}));
  EXPECT_EQ(take(), (Names{"a", "b"}));
  EXPECT_EQ(source->dealt_with(ListSource::k_all), ListSource::k_all);
  repeats = false;
  given.clear();
  open_from(ListSource::k_all, text({"a", "b"}));
  EXPECT_EQ(take(), Names{});
  EXPECT_TRUE(is_at_end());
}

}  // namespace
}  // namespace cube::prefetch
