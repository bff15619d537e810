// A large file with a disk tier. When its blocks are no longer in memory, they are read from the
// disk, but only blocks of the file's current version.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <string>

#include "cache/fill/large/large_file.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/segments.h"
#include "tests/support/blocks.h"
#include "tests/support/child.h"
#include "tests/support/empty_tier.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::k_mib;

constexpr std::uint64_t k_block = 64 << 10, k_page_of_file = 4096;
constexpr std::size_t k_size = 2 * k_chunk_bytes + 2 * k_block + 54'321;

// A file that this process has open.
struct OpenLarge {
  FileCache& cache;
  const std::string path;
  const int fd;
  LargeFile* const file;

  OpenLarge(FileCache& by, const std::string& name)
      : cache(by),
        path(name),
        fd(open(name.c_str(), O_RDONLY | O_CLOEXEC)),
        file(by.large().begin(name, fd)) {}
  OpenLarge(const OpenLarge&) = delete;
  OpenLarge& operator=(const OpenLarge&) = delete;
  ~OpenLarge() {
    if (file != nullptr) file->end();
    close(fd);
  }
  std::string read(std::uint64_t at, std::size_t n) const {
    std::string bytes(n, '?');
    const long got =
        cache.large().read(*file, FdEpoch(fd), reinterpret_cast<std::byte*>(bytes.data()), n, at);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  std::string read_all() const {
    std::string all;
    for (std::uint64_t at = 0; at < k_size; at += k_block)
      all += read(at, std::min<std::size_t>(k_block, k_size - at));
    return all;
  }
  FileStat stat() const { return *stat_fd(fd); }
  void forget() const { cache.large().forget(path, stat(), {0, k_size}); }
};

struct LargeDiskTest : testing::Test {
  tests::TempDir origin, disk;
  tests::RegionName region{64 * k_mib};
  base::Config config = config_of();
  const std::string data = tests::content_of("large", 1, k_size);
  const std::string path = write(data, 1'600'000'000);
  FileCache* const cache = attach(config);

  // Another test may have found its region full.
  LargeDiskTest() { LargeFile::forget_users(); }
  ~LargeDiskTest() override { cache->detach(); }

  base::Config config_of() const {
    base::Config made = tests::config_for(region.options);
    made.max_file = 100'000;
    made.block = k_block;
    made.disk_dir = disk.path();
    made.disk = {.is_percent = false, .value = 512 * k_mib};
    return made;
  }
  FileCache* attach(const base::Config& by) const {
    FileCache* const attached = tests::attach_cache(by, region.options.job);
    if (attached == nullptr || attached->tiers().is_empty()) _exit(98);
    return attached;
  }
  std::string write(std::string_view bytes, std::time_t modified) const {
    std::string name = origin.write("large", bytes);
    const timespec times[2] = {{modified, 0}, {modified, 0}};
    utimensat(AT_FDCWD, name.c_str(), times, 0);
    return name;
  }
  static std::uint64_t count(FileCache& by, Counter counter) {
    return by.stats().counters[static_cast<std::size_t>(counter)].load();
  }
  std::uint64_t count(Counter counter) const { return count(*cache, counter); }
  std::uint64_t on_disk() const { return (*cache->tiers().begin())->status().entries; }
  void write_to_disk() const {
    TierWriter writer = cache->tier_writer();
    EXPECT_EQ(writer.pass([] { return true; }), 0);
  }
  bool is_any_offered() const {
    const Chunks chunks(cache->region());
    bool is_any = false;
    for (std::uint32_t at = 0; at < cache->region().layout().chunk_count(); ++at)
      is_any = is_any || chunks.has_offer(at);
    return is_any;
  }
};

constexpr std::uint64_t k_blocks = (k_size + k_block - 1) / k_block;

TEST_F(LargeDiskTest, EvictedBlocksComeFromTheDisk) {
  const OpenLarge large(*cache, path);
  ASSERT_NE(large.file, nullptr);
  EXPECT_EQ(large.read_all(), data);
  EXPECT_EQ(count(Counter::origin_bytes), k_size);
  EXPECT_TRUE(is_any_offered());
  write_to_disk();
  EXPECT_EQ(on_disk(), k_blocks);
  EXPECT_EQ(count(Counter::block_disk), 0U);
  large.forget();
  EXPECT_EQ(large.read_all(), data);
  EXPECT_EQ(count(Counter::origin_bytes), k_size) << "nothing came from the origin again";
  EXPECT_EQ(count(Counter::block_disk), k_size);
  EXPECT_FALSE(is_any_offered()) << "what came from the disk is not written to it";
  write_to_disk();
  EXPECT_EQ(on_disk(), k_blocks);
  EXPECT_EQ(count(Counter::block_ahead), 0U);
}

TEST_F(LargeDiskTest, BlocksAreReadAheadFromTheDisk) {
  const OpenLarge large(*cache, path);
  large.read_all();
  write_to_disk();
  large.forget();
  ASSERT_TRUE(cache->large().fetch_ahead(*large.file, large.fd, large.file->fds_left(),
                                         {5 * k_block, 6 * k_block}));
  EXPECT_EQ(count(Counter::block_disk), k_block);
  EXPECT_EQ(count(Counter::block_ahead), k_block);
  // The prefetcher of a list calls bring_ahead() like this.
  LargeFile::Range range{6 * k_block, 7 * k_block};
  const auto stretch =
      cache->large().bring_ahead(*large.file, large.fd, range, std::atomic<bool>{false});
  EXPECT_EQ(stretch.what, LargeFile::Brought::here);
  EXPECT_EQ(stretch.bytes, k_block);
  EXPECT_EQ(count(Counter::block_disk), 2 * k_block);
  EXPECT_EQ(large.read(5 * k_block, 2 * k_block), data.substr(5 * k_block, 2 * k_block));
  EXPECT_EQ(count(Counter::origin_bytes), k_size);
  EXPECT_FALSE(is_any_offered());
}

TEST_F(LargeDiskTest, RestOfABlockComesFromTheDisk) {
  const OpenLarge large(*cache, path);
  large.read_all();
  write_to_disk();
  large.forget();
  // Even the first read of a block asks the disk, so the test puts the page into memory in the way
  // of a mapping.
  {
    tests::BlockFile from_mapping(path, k_size);
    from_mapping.data = data;
    from_mapping.key = key_of_file(path, large.stat());
    from_mapping.bring(cache->region(), k_block + k_page_of_file, k_block + 2 * k_page_of_file);
  }
  EXPECT_EQ(large.read(k_block, k_block), data.substr(k_block, k_block));
  EXPECT_EQ(count(Counter::block_disk), k_block - k_page_of_file);
  EXPECT_EQ(count(Counter::origin_bytes), k_size);
  EXPECT_FALSE(is_any_offered());
}

TEST_F(LargeDiskTest, BlockFromTheDiskIsNotOfferedAgain) {
  const OpenLarge large(*cache, path);
  large.read(0, k_block);
  write_to_disk();
  large.forget();
  large.read(0, k_block);
  large.read(k_block, k_block);
  EXPECT_EQ(count(Counter::block_disk), k_block);
  EXPECT_EQ(count(Counter::origin_bytes), 2 * k_block);
  EXPECT_TRUE(is_any_offered());
  const Chunks chunks(cache->region());
  const auto claim = chunks.find(key_of_file(path, large.stat()), 0);
  ASSERT_TRUE(claim);
  EXPECT_TRUE(chunks.is_offered(claim, pages_of(0, k_block)));
  EXPECT_FALSE(chunks.is_offered(claim, pages_of(k_block, 2 * k_block)));
  write_to_disk();
  EXPECT_EQ(on_disk(), 2U);
  EXPECT_TRUE(chunks.is_offered(claim, pages_of(k_block, 2 * k_block)));
}

TEST_F(LargeDiskTest, LastPageFromTheDiskIsFilledWithZeros) {
  const OpenLarge large(*cache, path);
  large.read_all();
  write_to_disk();
  large.forget();
  const std::uint64_t last = k_size / k_page_of_file * k_page_of_file;
  // At every place that the chunk can get, an earlier fetch has left bytes past the end of the
  // file.
  Region& all = cache->region();
  for (std::uint32_t at = 0; at < all.layout().chunk_count(); ++at) {
    if (SegmentWord::of_word(all.chunk_row(at).word.load()).state == SegmentState::sealed) continue;
    const std::uint64_t page = std::uint64_t{at} * k_chunk_bytes + last % k_chunk_bytes;
    ASSERT_TRUE(all.reserve_data(page, k_page_of_file));
    const auto memory = all.window(page, k_page_of_file);
    ASSERT_TRUE(memory);
    std::memset(memory->data(), 'x', k_page_of_file);
  }
  EXPECT_EQ(large.read(k_size - 10, 10), data.substr(k_size - 10));
  EXPECT_GT(count(Counter::block_disk), 0U);
  const auto claim = Chunks(all).find(key_of_file(path, large.stat()), chunk_of(last));
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim.data()[(k_size - 1) % k_chunk_bytes], static_cast<std::byte>(data.back()));
  for (std::uint64_t i = k_size; i < last + k_page_of_file; ++i)
    ASSERT_EQ(claim.data()[i % k_chunk_bytes], std::byte{0}) << i;
}

TEST_F(LargeDiskTest, NextRegionServesBlocksFromTheDisk) {
  {
    const OpenLarge large(*cache, path);
    large.read_all();
    write_to_disk();
  }
  EXPECT_EQ(tests::run_in_child([&] {
              // The region has the same name, because the disk's directory has that name, too.
              CHILD_CHECK(unlink(region.path().c_str()) == 0);
              FileCache* const own = attach(config);
              {
                const OpenLarge large(*own, path);
                CHILD_CHECK(large.file != nullptr);
                CHILD_CHECK(large.read_all() == data);
              }
              CHILD_CHECK(count(*own, Counter::origin_bytes) == 0);
              CHILD_CHECK(count(*own, Counter::block_disk) == k_size);
              own->detach();
              return 0;
            }),
            0);
}

TEST_F(LargeDiskTest, NewVersionIsNotServedFromOldBlocks) {
  {
    const OpenLarge large(*cache, path);
    large.read_all();
    write_to_disk();
    large.forget();
  }
  // The inode and the size stay the same.
  const std::string changed = tests::content_of("large", 2, k_size);
  write(changed, 1'600'000'100);
  const OpenLarge large(*cache, path);
  ASSERT_NE(large.file, nullptr);
  EXPECT_EQ(large.read_all(), changed);
  EXPECT_EQ(count(Counter::block_disk), 0U);
  EXPECT_EQ(count(Counter::origin_bytes), 2 * k_size);
  EXPECT_EQ(on_disk(), 0U) << "the former ones leave";
  write_to_disk();
  EXPECT_EQ(on_disk(), k_blocks);
  large.forget();
  EXPECT_EQ(large.read_all(), changed);
  EXPECT_EQ(count(Counter::block_disk), k_size);
}

TEST_F(LargeDiskTest, FileThatMayChangeWithinItsTimestampGranularityIsNotWritten) {
  write(data, std::time(nullptr) + 1000);
  const OpenLarge large(*cache, path);
  ASSERT_TRUE(large.file != nullptr && large.read_all() == data);
  write_to_disk();
  EXPECT_EQ(on_disk(), 0);
}

TEST_F(LargeDiskTest, PartOfABlockIsNotWritten) {
  const OpenLarge large(*cache, path);
  EXPECT_EQ(large.read(3 * k_block, k_page_of_file), data.substr(3 * k_block, k_page_of_file));
  EXPECT_FALSE(is_any_offered());
  write_to_disk();
  EXPECT_EQ(on_disk(), 0U);
  // A second read of the block fetches the rest of it.
  large.read(3 * k_block + k_page_of_file, k_block - k_page_of_file);
  EXPECT_TRUE(is_any_offered());
  write_to_disk();
  EXPECT_EQ(on_disk(), 1U);
}

// The last block is whole although the other blocks of its chunk are missing.
TEST_F(LargeDiskTest, LastBlockIsWrittenThoughItIsShorter) {
  const OpenLarge large(*cache, path);
  constexpr std::uint64_t k_last = (k_blocks - 1) * k_block;
  EXPECT_EQ(large.read(k_last, k_size - k_last), data.substr(k_last));
  EXPECT_TRUE(is_any_offered());
  write_to_disk();
  EXPECT_EQ(on_disk(), 1U);
}

// A tier that has either every block of one file or no block. abandon() destroys the object.
struct ChildsTier final : tests::EmptyTier {
  const std::string& data;
  FileStat stat;
  int visits = 0;
  bool has_blocks = true;
  bool is_abandoned = false;

  ChildsTier(const std::string& bytes, const FileStat& of) : EmptyTier(0), data(bytes), stat(of) {}
  bool visit(std::string_view key, Judge& judge) override {
    if (is_abandoned) _exit(77);
    ++visits;
    if (!has_blocks) return false;
    const std::size_t end = key.find("//");
    const BlockPlace place{k_block, std::stoull(std::string(key.substr(key.rfind('/') + 1)))};
    const tests::BlockRecord record(
        key.substr(0, end), place, stat,
        std::string_view(data).substr(place.begin(), place.bytes(k_size)));
    return judge.judge(*record) == Verdict::taken;
  }
  void abandon() override { is_abandoned = true; }
};

struct LargeTierTest : testing::Test {
  tests::TempDir origin;
  const std::string data = tests::content_of("large", 1, k_size);
  const std::string path = origin.write("large", data);
  tests::TestRegion region{40 * k_mib};
  base::Config config = config_of();
  CacheParts parts{*region, config};
  LargeFiles large{parts};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ChildsTier tier{data, *stat_fd(fd)};
  LargeFile* file = nullptr;

  LargeTierTest() { LargeFile::forget_users(); }
  ~LargeTierTest() override {
    if (file != nullptr) file->end();
    close(fd);
  }
  base::Config config_of() const {
    base::Config made = tests::config_for(region.options);
    made.max_file = 100'000;
    made.block = k_block;
    return made;
  }
  void begin() {
    const timespec old[2] = {{1'600'000'000, 0}, {1'600'000'000, 0}};
    ASSERT_EQ(futimens(fd, old), 0);
    tier.stat = *stat_fd(fd);
    file = large.begin(path, fd);
    ASSERT_NE(file, nullptr);
  }
  std::string read(std::uint64_t at, std::size_t n) {
    std::string bytes(n, '?');
    const long got =
        large.read(*file, FdEpoch(fd), reinterpret_cast<std::byte*>(bytes.data()), n, at);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
};

// Pages read from the origin show that no other node had the block just before.
TEST_F(LargeTierTest, ClusterIsNotAskedForABlockBeingReadFromTheOrigin) {
  tier.has_blocks = false;
  parts.remote.add(tier);
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_EQ(read(k_page_of_file, 10), data.substr(k_page_of_file, 10));
  EXPECT_EQ(tier.visits, 1);
  EXPECT_EQ(read(8 * k_page_of_file, 10), data.substr(8 * k_page_of_file, 10));
  EXPECT_EQ(tier.visits, 1);
  EXPECT_EQ(read(3 * k_block, 10), data.substr(3 * k_block, 10));
  EXPECT_EQ(tier.visits, 2) << "another block";
}

// A region in which all places wait for the writer, which never runs.
struct LargeWaitTest : LargeTierTest {
  LargeWaitTest() {
    parts.tiers.add(tier);
    Chunks chunks(*region);
    for (std::uint32_t number = 0; number < resident_segments(*region); ++number)
      chunks.note_whole(chunks.make({1, {2, 3}}, number, Chunks::k_none));
    region->header().disk_alive_ns.store(base::coarse_monotonic_ns() + 3'600'000'000'000);
  }
};

TEST_F(LargeWaitTest, ProgramWaitsOnlyBrieflyForALateWriter) {
  ASSERT_NO_FATAL_FAILURE(begin());
  alarm(120);
  EXPECT_EQ(read(0, k_block), data.substr(0, k_block));
  alarm(0);
  EXPECT_GT(region->header().disk_news.load(), 0U) << "it waited for the writer first";
  EXPECT_EQ(tier.visits, 1) << "it is asked when there is a place";
  EXPECT_EQ(region->header().chunks_waiting.load(), 0U);
  EXPECT_EQ(parts.stats().counters[static_cast<std::size_t>(Counter::block_disk)].load(), k_block);
}

// For the handler of the next test.
LargeWaitTest* g_waits = nullptr;
bool g_is_child = false;
pid_t g_child = -1;

// The handler runs while the fetch waits for the writer, before it asks the tier.
TEST_F(LargeWaitTest, ChildThatForkedInAFetchAsksNoTierOfItsParent) {
  if (tests::k_tsan)
    GTEST_SKIP()
        << "ThreadSanitizer delivers signals later than the kernel, and allocates in a child";
  ASSERT_NO_FATAL_FAILURE(begin());
  g_waits = this;
  struct sigaction action {};
  action.sa_handler = [](int) {
    if (g_child >= 0) return;
    g_child = fork();
    if (g_child != 0) return;
    // The library does the same in a child (shim/process/attachment.cc).
    g_is_child = true;
    LargeFile::forget_users();
    for (Tier* const of_parent : g_waits->parts.tiers) of_parent->abandon();
    FetchScope::forget();
  };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval soon{{0, 0}, {0, 5000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  const std::string got = read(0, k_block);
  // The child leaves the read to the kernel.
  if (g_is_child) _exit(got.empty() ? 0 : 1);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(got, data.substr(0, k_block));
  ASSERT_GT(g_child, 0) << "no handler ran";
  int status = 0;
  ASSERT_EQ(waitpid(g_child, &status, 0), g_child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "77: it asked the parent's tier";
}

}  // namespace
}  // namespace cube::cache
