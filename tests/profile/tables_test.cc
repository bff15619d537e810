#include "shim/profile/tables.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

namespace cube::shim::profile {
namespace {

class ProfileTables : public testing::Test {
 protected:
  // One mapping for all tests, which is reset for each, because mappings are never unmapped.
  static Tables& all() {
    static Tables* const tables = make_tables();
    return *tables;
  }
  void SetUp() override { start_over(all()); }
  static Stack stack_of(std::uintptr_t address) {
    Stack stack;
    stack.native[0] = address;
    stack.natives = 1;
    return stack;
  }
};

TEST_F(ProfileTables, StackIsOneSiteOfEachKind) {
  SiteRow* const row = site_of(all(), 1, stack_of(0x1234));
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(site_of(all(), 1, stack_of(0x1234)), row);
  EXPECT_NE(site_of(all(), 2, stack_of(0x1234)), row);
  EXPECT_NE(site_of(all(), 1, stack_of(0x1235)), row);
  EXPECT_EQ(row->stack.native[0], 0x1234U);
}

TEST_F(ProfileTables, PythonFramesDistinguishSites) {
  Stack one = stack_of(7), other = stack_of(7);
  one.python[0] = 3;
  other.python[0] = 4;
  one.pythons = other.pythons = 1;
  EXPECT_NE(site_of(all(), 1, one), site_of(all(), 1, other));
}

TEST_F(ProfileTables, FullTableCountsDroppedSites) {
  std::size_t kept = 0;
  constexpr std::size_t k_wanted = 3 * Tables::k_sites;
  for (std::size_t i = 0; i < k_wanted; ++i)
    kept += site_of(all(), 1, stack_of(i + 1)) != nullptr ? 1 : 0;
  EXPECT_GT(kept, Tables::k_sites / 2);
  EXPECT_LE(kept, Tables::k_sites);
  EXPECT_EQ(kept + all().dropped[k_no_site], k_wanted);
}

TEST_F(ProfileTables, FullTextArenaCountsDroppedTexts) {
  const std::string text(4000, 'x');
  std::size_t kept = 0;
  constexpr std::size_t k_wanted = Tables::k_strings / 4000 + 10;
  for (std::size_t i = 0; i < k_wanted; ++i) kept += keep_text(all(), text) != 0 ? 1 : 0;
  EXPECT_LT(kept, k_wanted);
  EXPECT_EQ(kept + all().dropped[k_no_text], k_wanted);
}

TEST_F(ProfileTables, TextIsKeptAndCutWhereItIsTooLong) {
  const std::uint32_t at = keep_text(all(), "name");
  EXPECT_STREQ(text_at(all(), at), "name");
  EXPECT_EQ(std::string(text_at(all(), keep_text(all(), std::string(9000, 'y')))).size(), 4095U);
  EXPECT_STREQ(text_at(all(), 0), "");
}

TEST_F(ProfileTables, ThreadsThatMakeTheSameSiteGetOneRow) {
  constexpr int k_threads = 4, k_sites = 500;
  std::vector<std::vector<SiteRow*>> rows(k_threads);
  std::vector<std::thread> threads;
  for (auto& own : rows) {
    threads.emplace_back([&own] {
      for (int i = 0; i < k_sites; ++i)
        own.push_back(site_of(all(), 1, stack_of(static_cast<std::uintptr_t>(i + 1))));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& own : rows) EXPECT_EQ(own, rows[0]);
}

TEST_F(ProfileTables, ForkedChildFindsThemWiped) {
  site_of(all(), 1, stack_of(99));
  const pid_t child = fork();
  if (child == 0) _exit(all().magic.load() == 0 && all().string_end.load() == 0 ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_NE(all().magic.load(), 0U);
}

TEST_F(ProfileTables, TimeOfACallIsSharedAmongTheBinsThatItSpans) {
  const std::uint64_t width = bin_width(0), first = all().start_ns / width + 1;
  const std::uint64_t begin = first * width + width / 4, end = (first + 2) * width + width / 2;
  add_to_time_line(all(), begin, end);
  const auto& bins = all().bins[0];
  const std::size_t at = first - all().start_ns / width;
  EXPECT_EQ(bins[at].busy_ns, width * 3 / 4);
  EXPECT_EQ(bins[at + 1].busy_ns, width);
  EXPECT_EQ(bins[at + 2].busy_ns, width / 2);
  EXPECT_EQ(bins[at].calls, 1U);
  EXPECT_EQ(bins[at + 1].calls, 0U);
}

TEST_F(ProfileTables, TimeBeforeTheStartOrAfterTheLastBinIsLeftOut) {
  add_to_time_line(all(), 1, 2);
  const std::uint64_t late = all().start_ns + 2 * k_bins * bin_width(0);
  add_to_time_line(all(), late, late + 5);
  for (const Bin& bin : all().bins[0]) ASSERT_EQ(bin.busy_ns, 0U);
  std::uint64_t coarse = 0;
  for (const Bin& bin : all().bins[2]) coarse += bin.busy_ns;
  EXPECT_EQ(coarse, 5U);
}

}  // namespace
}  // namespace cube::shim::profile
