#include "cache/metadata/mount_metadata.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/file_cache.h"
#include "cache/metadata/next_directories.h"
#include "cache/metadata/stat_gather.h"
#include "tests/cache/metadata_fixture.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::Child;
using Says = MountMetadata::Says;

struct MountMetadataTest : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache;
  std::string place;

  using Change = void (*)(base::Config&);
  explicit MountMetadataTest(Change change = nullptr) : cache(16 * tests::k_mib, change) {}
  MountMetadata& metadata() { return cache->metadata(); }
  std::uint64_t count(Counter counter) {
    return cache->stats().counters[static_cast<std::size_t>(counter)].load();
  }
  void SetUp() override {
    for (const char* const name : {"one", "Two", "three"}) dir.write(name, name);
    place = dir.path();
    age();
  }
  void age(std::int64_t seconds = 1'000'000'000) const {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, place.c_str(), times, 0), 0);
  }
  int list() { return tests::entries_of(metadata(), place); }
  Says stat(const std::string& name, FileStat& found) {
    return metadata().stat(place + "/" + name, true, false, found);
  }
  void gather() { ASSERT_TRUE(tests::gather(metadata(), place, "one")); }
  template <typename Act>
  void change_record(const Record& record, Act act) {
    const RegionLayout& layout = cache->region().layout();
    const std::size_t bytes = std::size_t{layout.segment_bytes} * layout.segment_count;
    auto window = cache->region().window(0, bytes);
    ASSERT_TRUE(window);
    act(*reinterpret_cast<Record*>(window->data() + cache->region().offset_in_data(&record)));
  }
};

constexpr base::MetadataTtl k_a_minute{.kind = base::MetadataTtl::Kind::seconds, .seconds = 60};

struct MountMetadataTtlTest : MountMetadataTest {
  static void hold_for_a_minute(base::Config& config) { config.metadata_ttl = k_a_minute; }
  explicit MountMetadataTtlTest(Change change = hold_for_a_minute) : MountMetadataTest(change) {}
  // Makes the record look as if the origin had been asked this long ago.
  void age_record(const Record& record, std::uint64_t seconds) {
    change_record(record, [&](Record& own) {
      own.verified_ns.store(base::boot_ns() - seconds * 1'000'000'000);
    });
  }
};

struct MountMetadataBoundedTtlTest : MountMetadataTtlTest {
  MountMetadataBoundedTtlTest()
      : MountMetadataTtlTest([](base::Config& config) {
          config.metadata_ttl = k_a_minute;
          config.consistency = {.kind = base::ConsistencyKind::ttl, .ttl_seconds = 2};
        }) {}
};

TEST_F(MountMetadataTest, ListingIsReadOnceAndGivesNegativeEntries) {
  EXPECT_FALSE(metadata().is_absent(place + "/none"));
  EXPECT_EQ(list(), 5);
  EXPECT_EQ(list(), 5);
  EXPECT_EQ(count(Counter::metadata_read), 1U);
  EXPECT_EQ(count(Counter::metadata_listed), 1U);
  EXPECT_TRUE(metadata().is_absent(place + "/none"));
  EXPECT_TRUE(metadata().is_absent(place + "/none/below/it"));
  EXPECT_FALSE(metadata().is_absent(place + "/one"));
  EXPECT_TRUE(metadata().is_file(place + "/one"));
  for (const char* const hidden : {"/.snapshot", "/none.", "/n\xc3\xa9", "/no ne"})
    EXPECT_FALSE(metadata().is_absent(place + hidden)) << hidden;
}

// An epoch opens files of a thousand directories in turn.
TEST_F(MountMetadataTest, OpenOfAnExistingFileReadsNoDirectory) {
  EXPECT_EQ(list(), 5);
  const Pin kept = metadata().listing_of(place, place.c_str());
  const RegionLayout& layout = cache->region().layout();
  auto window = cache->region().window(0, std::size_t{layout.segment_bytes} * layout.segment_count);
  ASSERT_TRUE(kept && window);
  auto& record =
      *reinterpret_cast<Record*>(window->data() + cache->region().offset_in_data(&*kept));
  record.verified_ns.store(base::boot_ns() - 5'000'000'000);
  EXPECT_TRUE(cache->open(tests::request_for(place + "/one")).pin);
  EXPECT_EQ(count(Counter::metadata_revalidations), 0U);
  EXPECT_EQ(cache->open(tests::request_for(place + "/none")).error, ENOENT);
  EXPECT_EQ(count(Counter::metadata_revalidations), 1U);
}

TEST_F(MountMetadataTest, StatsMatchTheOriginUntilAFileIsChanged) {
  EXPECT_EQ(list(), 5);
  FileStat found;
  EXPECT_EQ(stat("one", found), Says::unknown);
  gather();
  ASSERT_EQ(stat("one", found), Says::present);
  const auto real = stat_path(AT_FDCWD, (place + "/one").c_str(), 0);
  EXPECT_TRUE(found.is_unchanged_since(*real));
  EXPECT_EQ(StatGather::begin(metadata(), place, "one"), nullptr) << "all is known";
  cache->changes().content_changed({}, &*real);
  EXPECT_EQ(stat("one", found), Says::unknown);
  EXPECT_EQ(stat("Two", found), Says::present);
  EXPECT_EQ(StatGather::begin(metadata(), place, "none"), nullptr)
      << "a program that asks for absent names";
  cache->changes().writing_begins(place + "/Two",
                                  *stat_path(AT_FDCWD, (place + "/Two").c_str(), 0));
  EXPECT_EQ(stat("Two", found), Says::unknown) << "somebody writes it";
}

TEST_F(MountMetadataTest, StatOfATypeOtherThanTheListedOneIsUnknown) {
  EXPECT_EQ(list(), 5);
  ASSERT_EQ(symlink("three", (place + "/link").c_str()), 0);
  ASSERT_EQ(rename((place + "/link").c_str(), (place + "/Two").c_str()), 0);
  gather();
  FileStat found;
  EXPECT_EQ(stat("Two", found), Says::unknown);
  EXPECT_EQ(stat("one", found), Says::present);
}

TEST_F(MountMetadataTest, LinksMatchTheOriginUntilOneIsReplaced) {
  ASSERT_EQ(mkdir((place + "/d").c_str(), 0700), 0);
  for (const auto& [name, target] : {std::pair{"near", "one"},
                                     {"nowhere", "none"},
                                     {"turn", "d/../one"},
                                     {"out", "/etc/passwd"},
                                     {"loop", "loop"}})
    ASSERT_EQ(symlink(target, (place + "/" + name).c_str()), 0);
  age();
  EXPECT_EQ(list(), 11);
  char room[PATH_MAX];
  MountMetadata::FoundPath found{.text = room};
  const auto read = [&](const char* name) {
    return metadata().read_link(place + "/" + name, found);
  };
  const auto real = [&](const char* name) {
    return metadata().real_path(place + "/" + name, MountMetadata::Leads::anywhere, found);
  };
  EXPECT_EQ(read("near"), Says::unknown);
  gather();
  ASSERT_EQ(read("near"), Says::present);
  EXPECT_EQ(found.view(), "one");
  ASSERT_EQ(read("one"), Says::present);
  EXPECT_EQ(found.view(), "") << "no link";
  EXPECT_EQ(read("none"), Says::absent);
  ASSERT_EQ(real("near"), Says::present);
  EXPECT_EQ(found.view(), place + "/one");
  EXPECT_EQ(real("one"), Says::present);
  EXPECT_EQ(real("nowhere"), Says::absent);
  for (const char* const name : {"turn", "out", "loop"})
    EXPECT_EQ(real(name), Says::unknown) << name;
  EXPECT_EQ(metadata().real_path(place + "/one", MountMetadata::Leads::by_link, found),
            Says::unknown)
      << "no link is at its end";
  EXPECT_EQ(metadata().real_path(place + "/near", MountMetadata::Leads::by_link, found),
            Says::present);
  FileStat stat;
  EXPECT_EQ(metadata().stat(place + "/near", false, false, stat), Says::unknown)
      << "a link is not followed here";
  const auto link = stat_path(AT_FDCWD, (place + "/near").c_str(), AT_SYMLINK_NOFOLLOW);
  cache->changes().content_changed({}, &*link);
  EXPECT_EQ(read("near"), Says::unknown);
  EXPECT_EQ(real("near"), Says::unknown);
}

// With fs.protected_symlinks, the kernel refuses to follow the link, but lets all users read it.
TEST_F(MountMetadataTest, LinkOfAnotherUserInAStickyDirectoryIsReadButNotFollowed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const char* const name : {"/own", "/strange"})
    ASSERT_EQ(symlink("one", (place + name).c_str()), 0);
  ASSERT_EQ(lchown((place + "/strange").c_str(), 12345, 12345), 0);
  ASSERT_EQ(chmod(place.c_str(), 01777), 0);
  age();
  EXPECT_EQ(list(), 7);
  gather();
  char room[PATH_MAX];
  MountMetadata::FoundPath found{.text = room};
  const auto real = [&](const char* name, MountMetadata::Leads leads) {
    return metadata().real_path(place + name, leads, found);
  };
  EXPECT_EQ(real("/own", MountMetadata::Leads::by_link), Says::present);
  EXPECT_EQ(real("/strange", MountMetadata::Leads::by_link), Says::unknown);
  EXPECT_EQ(real("/strange", MountMetadata::Leads::anywhere), Says::present);
  EXPECT_EQ(metadata().read_link(place + "/strange", found), Says::present);
}

TEST_F(MountMetadataTest, LinksOfANosymfollowMountAreNotFollowed) {
  constexpr unsigned long k_no_follow = 256;  // MS_NOSYMFOLLOW
  place += "/mounted";
  ASSERT_EQ(mkdir(place.c_str(), 0700), 0);
  if (::mount("none", place.c_str(), "tmpfs", k_no_follow, nullptr) != 0)
    GTEST_SKIP() << "needs to mount";
  ASSERT_EQ(close(creat((place + "/one").c_str(), 0600)), 0);
  ASSERT_EQ(symlink("one", (place + "/link").c_str()), 0);
  age();
  EXPECT_EQ(list(), 4);
  gather();
  char room[PATH_MAX];
  MountMetadata::FoundPath found{.text = room};
  FileStat stat_of_link;
  EXPECT_EQ(stat("link", stat_of_link), Says::present);
  EXPECT_EQ(metadata().real_path(place + "/link", MountMetadata::Leads::by_link, found),
            Says::unknown);
  EXPECT_EQ(umount2(place.c_str(), MNT_DETACH), 0);
}

// The directory is moved away with all its entries, and a link replaces it. Neither the entries nor
// the times of the directory change.
TEST_F(MountMetadataTest, DirectoryReplacedByALinkIsNoRealPath) {
  const std::string top = place + "/top", inner = top + "/inner";
  ASSERT_EQ(mkdir(top.c_str(), 0700), 0);
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  ASSERT_EQ(close(creat((inner + "/file").c_str(), 0600)), 0);
  place = inner;
  age();
  const Pin kept = metadata().listing_of(inner, inner.c_str());
  ASSERT_TRUE(kept && kept->is_physical());
  char room[PATH_MAX];
  MountMetadata::FoundPath found{.text = room};
  const auto real = [&] {
    return metadata().real_path(inner + "/file", MountMetadata::Leads::anywhere, found);
  };
  EXPECT_EQ(real(), Says::present);
  ASSERT_EQ(rename(top.c_str(), (top + "2").c_str()), 0);
  ASSERT_EQ(symlink("top2", top.c_str()), 0);
  const RegionLayout& layout = cache->region().layout();
  auto window = cache->region().window(0, std::size_t{layout.segment_bytes} * layout.segment_count);
  ASSERT_TRUE(window);
  reinterpret_cast<Record*>(window->data() + cache->region().offset_in_data(&*kept))
      ->verified_ns.store(base::boot_ns() - 5'000'000'000);
  EXPECT_EQ(real(), Says::unknown);
  const Pin again = metadata().listing_of(inner, inner.c_str());
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->is_physical());
}

TEST_F(MountMetadataTtlTest, RegatheredStatsReplaceOldOnes) {
  EXPECT_EQ(list(), 5);
  const auto one = stat_path(AT_FDCWD, (place + "/one").c_str(), 0);
  for (int i = 0; i < 20; ++i) {
    gather();
    FileStat found;
    ASSERT_EQ(stat("one", found), Says::present) << i;
    cache->changes().content_changed({}, &*one);
  }
}

TEST_F(MountMetadataTest, GatheredStatIsUnknownOnceTheKernelReturnsAnother) {
  EXPECT_EQ(list(), 5);
  gather();
  FileStat found;
  ASSERT_EQ(stat("one", found), Says::present);
  metadata().correct_stat(place + "/one", found);
  EXPECT_EQ(stat("one", found), Says::present);
  ++found.size;
  metadata().correct_stat(place + "/one", found);
  EXPECT_EQ(stat("one", found), Says::unknown);
}

TEST_F(MountMetadataTest, StatThatShowsAChangeOfADirectoryDropsItsListing) {
  EXPECT_EQ(list(), 5);
  const auto learn_stat = [&] {
    const auto now = stat_path(AT_FDCWD, place.c_str(), 0);
    cache->corrections().learn_stat(place, *now, /*no_follow=*/false);
  };
  learn_stat();
  EXPECT_TRUE(metadata().is_absent(place + "/none"));
  age(1'000'000'001);
  learn_stat();
  EXPECT_FALSE(metadata().is_absent(place + "/none"));
}

// Another node removes the directory.
TEST_F(MountMetadataTest, FilesBelowARemovedDirectoryAreNotServed) {
  const std::string gone = place + "/gone";
  ASSERT_EQ(mkdir(gone.c_str(), 0700), 0);
  for (const char* const name : {"/one", "/two"}) {
    tests::TempDir::write_file(gone + name, name);
    EXPECT_TRUE(cache->open(tests::request_for(gone + name)).pin);
    ASSERT_EQ(unlink((gone + name).c_str()), 0);
  }
  ASSERT_EQ(rmdir(gone.c_str()), 0);
  EXPECT_TRUE(cache->open(tests::request_for(gone + "/two")).pin) << "nothing has told of it";
  EXPECT_TRUE(cache->corrections().learn_way_is_broken(gone + "/one"));
  EXPECT_FALSE(cache->open(tests::request_for(gone + "/two")).pin);
}

// A directory becomes a file, which is cached, and then a directory again. Memory still has the
// listing of the first directory.
TEST_F(MountMetadataTest, FileIsNotServedOnceADirectoryReplacesIt) {
  const std::string way = place + "/way";
  ASSERT_EQ(mkdir(way.c_str(), 0700), 0);
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, way.c_str(), times, 0), 0);
  EXPECT_EQ(tests::entries_of(metadata(), way), 2);
  ASSERT_EQ(rmdir(way.c_str()), 0);
  tests::TempDir::write_file(way, "file");
  EXPECT_TRUE(cache->open(tests::request_for(way)).pin);
  ASSERT_EQ(unlink(way.c_str()), 0);
  ASSERT_EQ(mkdir(way.c_str(), 0700), 0);
  EXPECT_TRUE(cache->open(tests::request_for(way)).pin) << "nothing has told of it";
  cache->corrections().learn(way + "/new", {.kinds = Told::k_other});
  EXPECT_FALSE(cache->open(tests::request_for(way)).pin);
}

// Another node makes a file where memory has a negative entry, and a call below that path gets
// ENOTDIR.
TEST_F(MountMetadataTest, FileThatBreaksAPathIsNotAbsent) {
  EXPECT_EQ(list(), 5);
  const std::string file = place + "/new";
  EXPECT_TRUE(metadata().is_absent(file));
  tests::TempDir::write_file(file, "new");
  EXPECT_TRUE(metadata().is_absent(file)) << "nothing has told of it";
  EXPECT_TRUE(cache->corrections().learn_way_is_broken(file + "/below"));
  EXPECT_FALSE(metadata().is_absent(file));
}

// The change happens after the entry in the index and before the confirmation.
TEST_F(MountMetadataTest, RecordIsNotShownIfItsWatchSeesAChangeAfterItIsIndexed) {
  struct {
    mutable int looks = 0;
    bool is_unchanged() const { return ++looks == 1; }
  } watch;
  RecordContent content;
  content.kind = RecordKind::directory;
  content.path = place;
  EXPECT_FALSE(metadata().publish(content, 64, watch,
                                  [](std::byte* to) { std::fill_n(to, 64, std::byte()); }));
  EXPECT_EQ(watch.looks, 2);
  EXPECT_FALSE(
      RamTier(cache->region()).find_of_kind(RecordKind::directory, place, base::hash_path(place)));
}

TEST_F(MountMetadataTest, StoredListingFromTheSecondOfAChangeIsNotUsed) {
  // Tens of kilobytes are too much for a stack on which earlier frames have left their red zones.
  const auto made = std::make_unique<tests::ShelvedListing>(*cache.cache, cache.config, place);
  tests::ShelvedListing& own = *made;
  EXPECT_EQ(tests::entries_of(own.metadata, place), 5);
  EXPECT_EQ(count(Counter::metadata_stored), 1U);
  const Pin shown = own.metadata.listing_of(place, place.c_str());
  ASSERT_TRUE(shown);
  change_record(*shown, [](Record& shelved) { shelved.fetched_ns = 1'000'000'000'500'000'000; });
  own.shelf.put(own.ram, shown.duplicate());
  EXPECT_EQ(tests::entries_of(own.metadata, place), 5);
  EXPECT_EQ(count(Counter::metadata_stored), 1U);
  EXPECT_EQ(count(Counter::metadata_read), 2U);
}

// An origin can give a new file the inode number of the removed file, so that the listing looks
// unchanged.
TEST_F(MountMetadataTest, StatsAreDroppedWithTheirListing) {
  EXPECT_EQ(list(), 5);
  gather();
  FileStat found;
  ASSERT_EQ(stat("one", found), Says::present);
  const auto listed = metadata().stats_of(place);
  ASSERT_TRUE(listed);
  const std::uint64_t read = count(Counter::metadata_read);
  {
    const Pin before = metadata().listing_of(place, place.c_str());
    RamTier(cache->region()).mark_record_stale(*before);
  }
  age(1'000'000'001);
  const Pin after = metadata().listing_of(place, place.c_str());
  ASSERT_TRUE(after);
  EXPECT_EQ(count(Counter::metadata_read), read + 1);
  EXPECT_EQ(stat("one", found), Says::unknown);
  EXPECT_NE(StatGather::begin(metadata(), place, "one"), nullptr) << "they are gathered anew";
}

// Another node creates the file. A program that asks again is probably waiting for it.
TEST_F(MountMetadataTtlTest, SecondLookupOfAMissingNameAsksTheOriginWithinTheTtl) {
  EXPECT_EQ(list(), 5);
  age_record(*metadata().listing_of(place, place.c_str()), 5);
  EXPECT_TRUE(metadata().is_absent(place + "/new"));
  EXPECT_EQ(count(Counter::metadata_revalidations), 0U);
  dir.write("new", "");
  EXPECT_FALSE(metadata().is_absent(place + "/new"));
  EXPECT_EQ(count(Counter::metadata_revalidations), 1U);
}

// As on an object store, where no stat of the directory shows that it has changed.
TEST_F(MountMetadataTtlTest, SecondListingIsReadAgainWithinTheTtlIfTheTimesProveNothing) {
  EXPECT_EQ(list(), 5);
  const Pin kept = metadata().listing_of(place, place.c_str());
  change_record(*kept, [&](Record& own) {
    constexpr std::size_t k_has_true_times = 20;  // in the record's data
    std::byte* const data = reinterpret_cast<std::byte*>(&own) +
                            (kept->data() - reinterpret_cast<const std::byte*>(&*kept));
    *reinterpret_cast<std::uint32_t*>(data + k_has_true_times) = 0;
  });
  ASSERT_FALSE(DirectoryData::of(*kept)->has_true_times());
  age_record(*kept, 5);
  dir.write("new", "");
  age();
  EXPECT_EQ(list(), 6);
}

TEST_F(MountMetadataBoundedTtlTest, NegativeEntryLastsNoLongerThanTheConsistencyAllows) {
  EXPECT_EQ(list(), 5);
  age_record(*metadata().listing_of(place, place.c_str()), 5);
  dir.write("new", "");
  EXPECT_FALSE(metadata().is_absent(place + "/new"));
  EXPECT_EQ(count(Counter::metadata_revalidations), 1U);
}

TEST_F(MountMetadataTtlTest, TargetIsUnknownAfterAChangeOfTheDirectoryAndTheTtl) {
  ASSERT_EQ(symlink("one", (place + "/link").c_str()), 0);
  age();
  EXPECT_EQ(list(), 6);
  gather();
  char room[PATH_MAX];
  MountMetadata::FoundPath found{.text = room};
  const auto read = [&] { return metadata().read_link(place + "/link", found); };
  ASSERT_EQ(read(), Says::present);
  EXPECT_EQ(found.view(), "one");
  // Bypasses the library, like changes by another node.
  ASSERT_EQ(symlink("Two", (place + "/next").c_str()), 0);
  ASSERT_EQ(rename((place + "/next").c_str(), (place + "/link").c_str()), 0);
  age_record(*metadata().stats_of(place), 61);
  age_record(*metadata().listing_of(place, place.c_str()), 61);
  EXPECT_EQ(read(), Says::unknown);
}

TEST_F(MountMetadataTest, EmptyListingGivesNoNegativeEntries) {
  place += "/empty";
  ASSERT_EQ(mkdir(place.c_str(), 0700), 0);
  age();
  EXPECT_EQ(list(), 2);
  EXPECT_FALSE(metadata().is_absent(place + "/none"));
}

TEST_F(MountMetadataTest, ChangeOfEntriesByAnyPathDropsTheListing) {
  EXPECT_EQ(list(), 5);
  const auto real = stat_path(AT_FDCWD, place.c_str(), 0);
  cache->changes().entries_changed(*real);
  EXPECT_FALSE(metadata().is_absent(place + "/none"));
  EXPECT_EQ(list(), 5);
  EXPECT_EQ(count(Counter::metadata_read), 2U);
  cache->changes().tree_changed(place.substr(0, place.rfind('/')));
  EXPECT_FALSE(metadata().is_absent(place + "/none"));
}

// For example, each change of a log directory leaves a dead listing behind.
TEST(MountMetadataRoomTest, ConstantlyChangingDirectoryTakesNoMoreThanItsShare) {
  tests::TestCache cache(64 * tests::k_mib);
  tests::TempDir dir;
  for (int i = 0; i < 2000; ++i)
    dir.write("a_name_of_forty_letters_in_all_the_same_" + std::to_string(i), "");
  const std::uint64_t used_before = cache->region().header().used_bytes.load();
  for (int round = 0; round < 100; ++round) {
    const timespec times[2] = {{1'000'000'000 + round, 0}, {1'000'000'000 + round, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, dir.path().c_str(), times, 0), 0);
    cache->changes().entries_changed(*stat_path(AT_FDCWD, dir.path().c_str(), 0));
    const Pin listing = cache->metadata().listing_of(dir.path(), dir.path().c_str());
    ASSERT_TRUE(listing) << round;
    EXPECT_EQ(DirectoryData::of(*listing)->count(), 2002U);
  }
  EXPECT_LE(cache->region().header().used_bytes.load() - used_before, 4 * tests::k_mib);
}

// The buffer grows while the entries are read.
TEST(MountMetadataRoomTest, ListingOfMoreThanAMebibyteIsWhole) {
  constexpr int k_names = 4500;
  tests::TestCache cache(128 * tests::k_mib);
  tests::TempDir dir;
  const std::string file = dir.write("file", ""), long_name(240, 'x');
  for (int i = 0; i < k_names; ++i)
    ASSERT_EQ(
        link(file.c_str(), (dir.path() + "/" + std::to_string(10'000 + i) + long_name).c_str()), 0);
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, dir.path().c_str(), times, 0), 0);
  const Pin listing = cache->metadata().listing_of(dir.path(), dir.path().c_str());
  ASSERT_TRUE(listing);
  EXPECT_GT(DirectoryData::of(*listing)->entries().size(), tests::k_mib);
  EXPECT_EQ(DirectoryData::of(*listing)->count(), k_names + 3U);
}

TEST_F(MountMetadataTest, ChangeWhileADirectoryIsReadDiscardsItsListing) {
  const auto real = stat_path(AT_FDCWD, place.c_str(), 0);
  DirectoryWatch watch(cache->region());
  watch.watch(*real);
  EXPECT_TRUE(watch.is_unchanged());
  cache->changes().entries_changed(*real);
  EXPECT_FALSE(watch.is_unchanged());
  DirectoryWatch second(cache->region());
  second.watch(*real);
  cache->changes().tree_changed("/elsewhere");
  EXPECT_FALSE(second.is_unchanged());
}

TEST_F(MountMetadataTest, ListingInDoubtIsRevalidatedBeforeItsUse) {
  EXPECT_EQ(list(), 5);
  EXPECT_TRUE(metadata().is_absent(place + "/none"));
  EXPECT_EQ(count(Counter::metadata_revalidations), 0U);
  metadata().doubt();
  EXPECT_TRUE(metadata().is_absent(place + "/none"));
  EXPECT_EQ(count(Counter::metadata_revalidations), 1U);
  EXPECT_TRUE(metadata().is_absent(place + "/none"));
  EXPECT_EQ(count(Counter::metadata_revalidations), 1U) << "once";
}

TEST_F(MountMetadataTest, StatsAreNotGatheredInAReplacedDirectory) {
  const std::string former = place + "/former", inner = place + "/inner";
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  tests::TempDir::write_file(inner + "/one", "one");
  place = inner;
  age();
  ASSERT_EQ(list(), 3);
  const auto work = StatGather::begin(metadata(), place, "one");
  ASSERT_NE(work, nullptr);
  ASSERT_EQ(rename(inner.c_str(), former.c_str()), 0);
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  EXPECT_FALSE(work->open());
}

TEST_F(MountMetadataTest, FdOfALongDirectoryIsReturnedRewound) {
  const std::string tree = place + "/long";
  ASSERT_EQ(mkdir(tree.c_str(), 0700), 0);
  constexpr int k_entries = 2200;
  for (int i = 0; i < k_entries; ++i) {
    const std::string path = tree + "/" + std::to_string(10'000 + i) + std::string(240, 'x');
    ASSERT_EQ(close(creat(path.c_str(), 0600)), 0);
  }
  place = tree;
  age();
  const MountMetadata::Listed listed = metadata().list(place, place.c_str());
  EXPECT_EQ(listed.listing, nullptr);
  EXPECT_TRUE(listed.is_long);
  ASSERT_TRUE(listed.fd);
  int entries = 0;
  std::vector<char> room(64 << 10);
  for (long n; (n = syscall(SYS_getdents64, listed.fd.get(), room.data(), room.size())) > 0;) {
    for (long at = 0; at < n; at += reinterpret_cast<const dirent64*>(room.data() + at)->d_reclen)
      ++entries;
  }
  EXPECT_EQ(entries, k_entries + 2);
}

// A burst of misses in one directory is reported one time, and a later burst is reported again.
// Misses in other directories do not count.
TEST_F(MountMetadataTest, MissesAreCountedForEachDirectoryAndAgainAfterEachStorm) {
  // The two directories share one row of the counts.
  const std::string one = "/data/0";
  const auto row_of = [](const std::string& directory) {
    return base::hash_path(directory) % 1024;
  };
  int n = 1;
  while (row_of("/data/" + std::to_string(n)) != row_of(one)) ++n;
  const std::string other = "/data/" + std::to_string(n);
  // A small program has fewer misses.
  for (int i = 0; i < 100; ++i) metadata().note_miss("/elsewhere/" + std::to_string(i) + "/file");
  const auto misses = [&](const std::string& directory, int times) {
    int told = 0;
    for (int i = 0; i < times; ++i) told += metadata().note_miss(directory + "/file") ? 1 : 0;
    return told;
  };
  EXPECT_EQ(misses(one, 3), 0);
  EXPECT_EQ(misses(other, 3), 0);
  EXPECT_EQ(misses(other, 1), 1);
  EXPECT_EQ(misses(other, 3), 0);
  EXPECT_EQ(misses(other, 1), 1);
}

// A process that changes a directory reports that only if the device is known.
TEST_F(MountMetadataTest, DeviceIsKnownBeforeItsFirstListing) {
  const auto real = stat_path(AT_FDCWD, place.c_str(), 0);
  ASSERT_TRUE(real);
  EXPECT_FALSE(cache->changes().knows_device(real->device()));
  dir.write("new", "new");
  EXPECT_EQ(list(), -1) << "it is read, and not kept";
  EXPECT_TRUE(cache->changes().knows_device(real->device()));
}

TEST_F(MountMetadataTest, NewFileWithAReusedInodeWasNotListed) {
  EXPECT_EQ(list(), 5);
  const std::string path = place + "/one";
  auto file = stat_path(AT_FDCWD, path.c_str(), 0);
  const auto directory = stat_path(AT_FDCWD, place.c_str(), 0);
  ASSERT_TRUE(file && directory);
  EXPECT_TRUE(metadata().was_listed(path, *file));
  file->born = directory->changed;
  ++file->born.seconds;
  EXPECT_FALSE(metadata().was_listed(path, *file));
  file->born = {};
  EXPECT_TRUE(metadata().was_listed(path, *file)) << "the file system does not tell";
  ++file->inode;
  EXPECT_FALSE(metadata().was_listed(path, *file));
}

TEST_F(MountMetadataTest, RecentlyChangedDirectoryIsNotKept) {
  dir.write("new", "");
  EXPECT_EQ(list(), -1);
  EXPECT_FALSE(metadata().is_absent(place + "/none"));
  age();
  EXPECT_EQ(list(), 6);
}

TEST_F(MountMetadataTest, DirectoryWithoutSearchRightIsNotKept) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(chown(place.c_str(), 12345, 12345), 0);
  ASSERT_EQ(chmod(place.c_str(), 0744), 0);
  Child child([&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
    CHILD_CHECK(syscall(SYS_capget, &header, data) == 0);
    data[0].effective &= ~((1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH));
    CHILD_CHECK(syscall(SYS_capset, &header, data) == 0);
    FileCache* const own = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(own != nullptr);
    const MountMetadata::Listed listed = own->metadata().list(place, place.c_str());
    CHILD_CHECK(listed.listing == nullptr && listed.fd);
    FileStat found;
    CHILD_CHECK(own->metadata().stat(place + "/one", true, false, found) == Says::unknown);
    CHILD_CHECK(!own->metadata().is_absent(place + "/none") &&
                !own->metadata().is_file(place + "/one"));
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(list(), 5);
}

TEST_F(MountMetadataTest, DirectoriesAreFollowedInTheOrderOfTheListingOrOfTheNames) {
  const std::string tree = place + "/tree";
  ASSERT_EQ(mkdir(tree.c_str(), 0700), 0);
  for (int i = 10; i < 60; ++i)
    ASSERT_EQ(mkdir((tree + "/d" + std::to_string(i)).c_str(), 0700), 0);
  tests::TempDir::write_file(tree + "/d11x", "a file is none");
  place = tree;
  age();
  const Pin listing = metadata().listing_of(tree, tree.c_str());
  ASSERT_TRUE(listing);
  const auto data = DirectoryData::of(*listing);
  const auto name = [](int i) { return "d" + std::to_string(i); };
  using Names = std::vector<std::string>;
  NextDirectories next;
  EXPECT_EQ(next.after("/t", name(10), *data), Names());
  EXPECT_EQ(next.after("/t", name(11), *data), Names({"d12"}));
  EXPECT_EQ(next.after("/t", name(11), *data), Names()) << "the same";
  EXPECT_EQ(next.after("/t", name(12), *data), Names({"d13", "d14"}));
  EXPECT_EQ(next.after("/t", name(13), *data), Names({"d14", "d15", "d16", "d17"}));
  EXPECT_EQ(next.after("/t", name(50), *data), Names()) << "a jump";
  EXPECT_EQ(next.after("/t", name(51), *data), Names({"d52"}));
  EXPECT_EQ(next.after("/other", name(52), *data), Names()) << "another parent";
  EXPECT_EQ(next.after("/other", name(53), *data), Names({"d54"})) << "one at first";
  EXPECT_EQ(next.after("/other", "none", *data), Names());
  Names listed;
  DirectoryData::Entry entry;
  for (DirectoryData::Reader reader(data->entries()); reader.next(entry);) {
    if (entry.type == DT_DIR && entry.name.front() == 'd') listed.emplace_back(entry.name);
  }
  std::size_t most = 0;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const Names found = next.after("/third", listed[i], *data);
    most = std::max(most, found.size());
    for (std::size_t k = 0; k < found.size(); ++k) EXPECT_EQ(found[k], listed[i + 1 + k]);
  }
  EXPECT_EQ(most, NextDirectories::k_most);
}

TEST(DirectoryTimes, AreTrustedOnlyOnKnownFileSystems) {
  const auto line = [](const char* type) {
    return "42 27 0:39 / /mnt/a rw,nosuid shared:7 - " + std::string(type) + " source rw";
  };
  for (const char* const type : {"fuse.juicefs", "fuse.cubefs", "fuse.lagfs", "virtiofs"})
    EXPECT_TRUE(keeps_directory_times(line(type), 0, 39)) << type;
  for (const char* const type : {"fuse.s3fs", "fuse", "fuse.rclone", "fuse.juicefsx", ""})
    EXPECT_FALSE(keeps_directory_times(line(type), 0, 39)) << type;
  EXPECT_FALSE(keeps_directory_times(line("fuse.juicefs"), 0, 3));
  EXPECT_FALSE(keeps_directory_times(line("fuse.juicefs"), 39, 0));
  for (const char* const odd : {"", " ", "42 27 0:39", "42 27 0:39 / - ", "42 27 0: - fuse.juicefs",
                                "42 27 x:39 / - fuse.juicefs"})
    EXPECT_FALSE(keeps_directory_times(odd, 0, 39)) << odd;
}

TEST_F(MountMetadataTest, DirectoryIsReadAgainIfItsTimesProveNothing) {
  EXPECT_EQ(list(), 5);
  const Pin kept = metadata().listing_of(place, place.c_str());
  ASSERT_TRUE(kept);
  ASSERT_TRUE(DirectoryData::of(*kept)->has_true_times());
  // Simulates an object store: the record's head says whether the times are true, and the record
  // was last verified 5 s ago.
  const RegionLayout& layout = cache->region().layout();
  auto window = cache->region().window(0, std::size_t{layout.segment_bytes} * layout.segment_count);
  ASSERT_TRUE(window);
  auto& record =
      *reinterpret_cast<Record*>(window->data() + cache->region().offset_in_data(&*kept));
  record.verified_ns.store(base::boot_ns() - 5'000'000'000);
  EXPECT_TRUE(metadata().is_absent(place + "/none")) << "a look at the directory proves it";
  EXPECT_EQ(count(Counter::metadata_revalidations), 1U);
  std::byte* const data = window->data() + cache->region().offset_in_data(kept->data());
  *reinterpret_cast<std::uint32_t*>(data + 20) = 0;
  ASSERT_FALSE(DirectoryData::of(*kept)->has_true_times());
  record.verified_ns.store(base::boot_ns() - 5'000'000'000);
  EXPECT_FALSE(metadata().is_absent(place + "/none"));
  EXPECT_EQ(list(), 5);
  EXPECT_EQ(count(Counter::metadata_revalidations), 1U);
  EXPECT_EQ(count(Counter::metadata_read), 2U);
  EXPECT_EQ(&*metadata().listing_of(place, place.c_str()), &*kept)
      << "the same entries make no other record";
  EXPECT_TRUE(metadata().is_absent(place + "/none"));
}

TEST_F(MountMetadataTest, NameListedInAnotherCaseHasNoNegativeEntry) {
  tests::TempDir::write_file(place + "/Read.Me", "");
  age();
  ASSERT_GT(list(), 0);
  EXPECT_TRUE(metadata().is_absent(place + "/read.you"));
  EXPECT_FALSE(metadata().is_absent(place + "/read.me"));
  EXPECT_FALSE(metadata().is_absent(place + "/READ.ME/below"));
  EXPECT_FALSE(metadata().is_absent(place + "/READ~1.ME")) << "a short form of it";
}

TEST_F(MountMetadataTest, ListingWithNonAsciiNamesGivesNoNegativeEntries) {
  tests::TempDir::write_file(place + "/\xe2\x84\xaa",
                             "");  // the sign of Kelvin, which is a k in lower case
  age();
  ASSERT_GT(list(), 0);
  EXPECT_FALSE(metadata().is_absent(place + "/k"));
}

}  // namespace
}  // namespace cube::cache
