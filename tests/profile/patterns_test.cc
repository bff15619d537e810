#include "shim/cli/profile/profile_patterns.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cube::cli {
namespace {

namespace profile = shim::profile;

std::size_t kind_of(std::string_view name) {
  return static_cast<std::size_t>(
      std::find(std::begin(profile::k_kind_names), std::end(profile::k_kind_names), name) -
      std::begin(profile::k_kind_names));
}

ProfileSite site_of(std::string_view kind) {
  ProfileSite site;
  site.kind = kind_of(kind);
  site.frames = {{"main", "train.py", 1}, {"load", "train.py", 5}};
  site.counts[profile::k_calls] = 100;
  site.counts[profile::k_ns] = 1000;
  return site;
}

std::vector<std::string> names(const Profile& made) {
  std::vector<std::string> found;
  for (const auto& pattern : find_patterns(made)) found.push_back(pattern.name);
  return found;
}

Profile with_opens(std::initializer_list<std::pair<profile::OpenCount, std::uint64_t>> counts) {
  Profile made;
  made.sites = {site_of("open")};
  made.sites[0].opens[profile::k_closed] = 100;
  for (const auto& [which, count] : counts) made.sites[0].opens[which] = count;
  return made;
}

using Names = std::vector<std::string>;

TEST(Patterns, EachIsNamedFromItsShareOn) {
  EXPECT_EQ(names(with_opens({{profile::k_storms, 10}})), Names{"seek storm"});
  EXPECT_EQ(names(with_opens({{profile::k_storms, 9}})), Names{});
  EXPECT_EQ(names(with_opens({{profile::k_tiny_files, 10}})), Names{"tiny reads"});
  EXPECT_EQ(names(with_opens({{profile::k_tiny_files, 9}})), Names{});
  EXPECT_EQ(names(with_opens({{profile::k_whole_again, 5}})), Names{"whole file read twice"});
  EXPECT_EQ(names(with_opens({{profile::k_whole_again, 4}})), Names{});
  EXPECT_EQ(names(with_opens({{profile::k_stat_first, 50}})), Names{"stat before open"});
  EXPECT_EQ(names(with_opens({{profile::k_stat_first, 49}})), Names{});
  EXPECT_EQ(names(with_opens({{profile::k_opened_again, 10}})), Names{"file opened again"});
  EXPECT_EQ(names(with_opens({{profile::k_opened_again, 9}})), Names{});
  EXPECT_EQ(names(with_opens({{profile::k_unread, 20}})), Names{"files opened and not read"});
  EXPECT_EQ(names(with_opens({{profile::k_unread, 19}})), Names{});
  EXPECT_EQ(names(with_opens({{profile::k_large_random, 1}})), Names{"large file read at random"});
}

TEST(Patterns, LessThanAHundredthOfTheTimeIsMinor) {
  Profile made = with_opens({{profile::k_storms, 50}, {profile::k_storm_ns, 50}});
  made.end_ns = 5099;
  EXPECT_FALSE(find_patterns(made).at(0).is_minor);
  made.end_ns = 5100;
  EXPECT_TRUE(find_patterns(made).at(0).is_minor);
  made.sites = {site_of("lock")};
  made.sites[0].counts[profile::k_ns] = 1;
  EXPECT_FALSE(find_patterns(made).at(0).is_minor) << "the lock is cheap, the file is not";
}

TEST(Patterns, MostExpensiveComesFirstWithItsFunction) {
  const auto found = find_patterns(with_opens({{profile::k_storms, 50},
                                               {profile::k_storm_ns, 5},
                                               {profile::k_tiny_files, 50},
                                               {profile::k_tiny_ns, 9}}));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "tiny reads");
  EXPECT_EQ(found[0].cost_ns, 9U);
  EXPECT_EQ(found[0].site, "load (train.py:5) < main (train.py:1)");
  EXPECT_EQ(found[1].name, "seek storm");
}

TEST(Patterns, FunctionThatOpensByTwoWaysHasOnePattern) {
  Profile made = with_opens({{profile::k_storms, 50}});
  made.sites.push_back(made.sites[0]);
  made.sites[1].frames.push_back({"fopen_wrapper", "libx.so", 0});
  const auto found = find_patterns(made);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].count, 100U);
}

TEST(Patterns, ListingsAndLocks) {
  Profile made;
  made.sites = {site_of("list"), site_of("lock")};
  made.sites[0].counts[profile::k_again] = 50;
  const auto found = find_patterns(made);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "locks that materialize files");
  EXPECT_EQ(found[1].name, "tree listed again");
  EXPECT_EQ(found[1].cost_ns, 500U);
  made.sites.pop_back();
  made.sites[0].counts[profile::k_again] = 1;
  EXPECT_EQ(names(made), Names{});
}

// Bins of 10 ms, one in `one_in` of which has calls.
Profile with_bins(std::uint64_t busy_ns_each, std::uint64_t bins, std::uint64_t one_in = 1) {
  Profile made;
  made.sites = {site_of("read")};
  made.bin_width_ns = 10'000'000;
  for (std::uint64_t i = 0; i < bins; ++i)
    made.bins.push_back({i * one_in * made.bin_width_ns, busy_ns_each, 10});
  return made;
}

TEST(Patterns, CallsOneAtATimeAreSerial) {
  EXPECT_EQ(names(with_bins(9'000'000, 50)), Names{"serial first epoch"});
  EXPECT_EQ(names(with_bins(40'000'000, 50)), Names{}) << "four at a time";
  EXPECT_EQ(names(with_bins(9'000'000, 50, 8)), Names{"serial first epoch"});
  EXPECT_EQ(names(with_bins(9'000'000, 50, 10)), Names{}) << "seldom at all";
  EXPECT_EQ(names(with_bins(9'000'000, 5)), Names{}) << "not worth it";
}

TEST(Patterns, ImportsBeforeTheFirstCallMakeItNoLessSerial) {
  Profile made = with_bins(9'000'000, 50);
  made.end_ns = 60'000'000'000;
  EXPECT_EQ(names(made), Names{"serial first epoch"});
}

TEST(Patterns, SerialEpochIsOfTheFunctionOfTheProgramThatWaitsMost) {
  Profile made = with_bins(9'000'000, 50);
  const auto site = [](std::vector<ProfileFrame> frames, std::uint64_t origin_ns,
                       const char* example) {
    ProfileSite one;
    one.frames = std::move(frames);
    one.counts[profile::k_origin_ns] = origin_ns;
    one.example = example;
    return one;
  };
  const ProfileFrame main{"main", "/job/train.py", 1}, load{"load", "/job/train.py", 5},
      other{"other", "/job/train.py", 9};
  made.sites = {site({main, other}, 100, "/data/other"),
                site({main, load, {"imread", "/usr/lib/python3/dist-packages/x.py", 7}}, 60, ""),
                site({main, load}, 50, "/data/a")};
  const auto found = find_patterns(made);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].site,
            "imread (dist-packages/x.py:7) < load (job/train.py:5) < main (job/train.py:1)");
  EXPECT_EQ(found[0].example, "/data/a");
}

TEST(Patterns, ForgedCountsDivideByNothing) {
  Profile made = with_opens({{profile::k_unread, UINT64_MAX / 200},
                             {profile::k_closed, 2},
                             {profile::k_storms, 2},
                             {profile::k_tiny_files, 2}});
  made.sites.push_back(site_of("list"));
  made.sites.back().counts[profile::k_calls] = 0;
  made.sites.back().counts[profile::k_again] = 5;
  made.bins.push_back({0, 1ULL << 53, 1ULL << 53});
  EXPECT_FALSE(find_patterns(made).empty());
  EXPECT_TRUE(find_patterns(Profile()).empty());
}

}  // namespace
}  // namespace cube::cli
