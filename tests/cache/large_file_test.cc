// Reads of a large file without a program: which bytes they fetch, publish, and leave to the
// kernel.
#include "cache/fill/large/large_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/process/high_fd.h"
#include "cache/file_cache.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/large/large_pages.h"
#include "cache/region/segments.h"
#include "cache/region/writers.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;

constexpr std::uint64_t k_block = 64 << 10, k_page_of_file = 4096;
constexpr std::size_t k_size = 5'000'001;

std::string content_of(char seed) {
  std::string text(k_size, '\0');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(static_cast<std::size_t>(seed) + i / 777 + i);
  return text;
}

struct LargeFileTest : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache{64 * tests::k_mib, [](base::Config& config) {
                           config.max_file = 100'000;
                           config.block = k_block;
                         }};
  const std::string data = content_of('a');
  const std::string path = dir.write("f", data);
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  LargeFile* file = cache->large().begin(path, fd);
  LargeFile::Pace pace;

  void TearDown() override {
    if (file != nullptr) file->end();
    close(fd);
  }
  LargeFiles& large() const { return cache->large(); }
  // Returns the bytes with which the library answers.
  std::string read(std::uint64_t at, std::size_t n) const {
    std::string bytes(n, '?');
    const long got =
        large().read(*file, FdEpoch(fd), reinterpret_cast<std::byte*>(bytes.data()), n, at);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  std::uint64_t count(Counter counter) const {
    return cache->stats().counters[static_cast<std::size_t>(counter)].load();
  }
  // Waits until the file must be revalidated before its bytes are shown.
  static void let_the_look_be_old() {
    const std::uint64_t until = base::coarse_monotonic_ns() + 150'000'000;
    while (base::coarse_monotonic_ns() < until) sched_yield();
  }
};

TEST_F(LargeFileTest, SmallFileIsNotServedInBlocks) {
  const std::string small = dir.write("small", "bytes");
  const int other = open(small.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(large().begin(small, other), nullptr);
  close(other);
}

TEST_F(LargeFileTest, FileWrittenWithoutTheLibraryIsLeftToTheKernel) {
  const int writer = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(large().begin(path, fd), nullptr);
  close(writer);
  LargeFile* const again = large().begin(path, fd);
  ASSERT_NE(again, nullptr);
  again->end();
}

// An open file can have only one lease, so a lease of the library would replace the program's
// lease.
TEST_F(LargeFileTest, LeaseOfTheProgramOutlastsARevalidation) {
  ASSERT_EQ(read(0, 10), data.substr(0, 10));
  ASSERT_EQ(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
  cache->changes().content_changed({}, nullptr);
  let_the_look_be_old();
  ASSERT_EQ(read(4 * k_block, 10), data.substr(4 * k_block, 10));
  EXPECT_EQ(fcntl(fd, F_GETLEASE), F_RDLCK);
}

// If the stat were renewed too late, all threads that read the file would wait for it at the same
// time.
TEST_F(LargeFileTest, StatIsRenewedBeforeItIsTooOld) {
  constexpr std::uint64_t k_good_ns = 100'000'000, k_wait_ns = 85'000'000;
  bool is_renewed = false;
  // A busy machine may read too late; one try in time is enough.
  for (std::uint64_t at = 0; !is_renewed && at < 80 * k_page_of_file; at += 2 * k_page_of_file) {
    let_the_look_be_old();
    const std::uint64_t began = base::coarse_monotonic_ns();
    ASSERT_EQ(read(at, 10), data.substr(at, 10));
    const std::uint64_t stats = count(Counter::origin_stats);
    while (base::coarse_monotonic_ns() < began + k_wait_ns) sched_yield();
    const std::uint64_t next = at + k_page_of_file;
    ASSERT_EQ(read(next, 10), data.substr(next, 10));
    is_renewed = base::coarse_monotonic_ns() < began + k_good_ns &&
                 count(Counter::origin_stats) == stats + 1;
  }
  EXPECT_TRUE(is_renewed);
}

TEST_F(LargeFileTest, ReadFetchesOnlyItsPages) {
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(read(5000, 100), data.substr(5000, 100));
  EXPECT_EQ(count(Counter::origin_bytes), k_page_of_file);
  EXPECT_EQ(read(3 * k_block + 4000, 200), data.substr(3 * k_block + 4000, 200));
  EXPECT_EQ(count(Counter::origin_bytes), 3 * k_page_of_file);
}

TEST_F(LargeFileTest, BytesFetchedAheadAreUsedOnce) {
  ASSERT_NE(file, nullptr);
  ASSERT_TRUE(large().fetch_ahead(*file, fd, file->fds_left(), {0, k_block}));
  EXPECT_EQ(count(Counter::block_ahead), k_block);
  EXPECT_EQ(count(Counter::block_origin), k_block);
  const auto unread = [&] { return figures_of_chunks(cache->region()).unread; };
  EXPECT_EQ(unread(), k_block);
  for (int i = 0; i < 2; ++i) {
    read(0, k_page_of_file + 1);
    EXPECT_EQ(count(Counter::block_used), 2 * k_page_of_file);
  }
  EXPECT_EQ(unread(), k_block - 2 * k_page_of_file);
  LargeFile::Range all{0, k_block};
  std::array<LargeFile::Piece, 1> piece;
  ASSERT_EQ(large().pieces(*file, all, piece), 1U);
  EXPECT_EQ(count(Counter::block_used), k_block);
  EXPECT_EQ(unread(), 0U);
  // A read's own fetch does not count as fetched ahead.
  read(4 * k_block, k_page_of_file);
  EXPECT_EQ(count(Counter::block_ahead), k_block);
  EXPECT_EQ(count(Counter::block_origin), k_block + k_page_of_file);
  EXPECT_EQ(unread(), 0U);
}

TEST_F(LargeFileTest, PresentBytesOfARangeBeginWithinItsFirstPage) {
  ASSERT_NE(file, nullptr);
  read(0, 2 * k_page_of_file);
  EXPECT_EQ(large().present_bytes(*file, {100, k_block}), 2 * k_page_of_file - 100);
  EXPECT_EQ(large().present_bytes(*file, {5000, 5001}), 1U);
}

TEST_F(LargeFileTest, SecondReadIsFromMemory) {
  const std::string first = read(1'900'000, 400'000);
  EXPECT_EQ(first, data.substr(1'900'000, 400'000));
  const std::uint64_t reads = count(Counter::origin_reads);
  EXPECT_EQ(read(1'900'000, 400'000), first);
  EXPECT_EQ(count(Counter::origin_reads), reads);
  EXPECT_EQ(count(Counter::block_hits), 1U);
  EXPECT_EQ(count(Counter::block_misses), 1U);
}

TEST_F(LargeFileTest, OtherOpenOfTheSameVersionHasItsPages) {
  read(0, 100);
  const int again = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  LargeFile* const other = large().begin(path, again);
  ASSERT_NE(other, nullptr);
  std::array<std::byte, 100> bytes;
  const std::uint64_t reads = count(Counter::origin_reads);
  EXPECT_EQ(large().read(*other, FdEpoch(again), bytes.data(), bytes.size(), 0), 100);
  EXPECT_EQ(count(Counter::origin_reads), reads);
  other->end();
  close(again);
}

TEST_F(LargeFileTest, LastPageIsFilledWithZeros) {
  EXPECT_EQ(read(k_size - 10, 10), data.substr(k_size - 10));
  std::array<LargeFile::Piece, 4> pieces;
  LargeFile::Range all{0, (k_size + 4095) / 4096 * 4096};
  ASSERT_EQ(large().pieces(*file, all, pieces), 1U);
  const Region& region = cache->region();
  const std::byte* const page = region.segment(0) + (pieces[0].in_region - region.layout().data);
  for (std::size_t i = k_size % 4096; i < 4096; ++i) ASSERT_EQ(page[i], std::byte{0}) << i;
}

TEST_F(LargeFileTest, EndOfAFileIsReadWithODirect) {
  file->end();
  close(fd);
  fd = open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  file = fd >= 0 ? large().begin(path, fd) : nullptr;
  if (file == nullptr) GTEST_SKIP() << "no O_DIRECT here";
  EXPECT_EQ(read(k_size - 100, 100), data.substr(k_size - 100));
}

TEST_F(LargeFileTest, SequenceIsReadAheadInWideningWindows) {
  EXPECT_TRUE(large().ahead(*file, 0, 4096).is_empty());
  const auto first = large().ahead(*file, 4096, 4096);
  EXPECT_EQ(first.begin, k_block);
  EXPECT_EQ(first.end, 2 * k_block);
  const auto second = large().ahead(*file, 8192, 2 * k_block - 8192);
  EXPECT_EQ(second.begin, 2 * k_block);
  EXPECT_EQ(second.end, 4 * k_block);
  EXPECT_TRUE(large().ahead(*file, 2 * k_block, 10).is_empty());
  EXPECT_TRUE(large().ahead(*file, 1'000'000, 10).is_empty());
}

TEST_F(LargeFileTest, ReaderThatLeavesOutALittleIsReadAheadAsWideAsItReads) {
  // No matter where the first read begins, it reveals nothing about the pattern.
  EXPECT_TRUE(large().ahead(*file, 4, 2 * k_block).is_empty());
  const auto first = large().ahead(*file, 4 + 2 * k_block + k_block / 16, 2 * k_block);
  EXPECT_EQ(first.begin, 5 * k_block);
  EXPECT_EQ(first.end, 7 * k_block);
}

TEST_F(LargeFileTest, ReaderThatIsBehindTheWindowIsReadAheadAgain) {
  EXPECT_TRUE(large().ahead(*file, 0, 4096).is_empty());
  EXPECT_EQ(large().ahead(*file, 4096, 4096).end, 2 * k_block);
  // The unread part of the next block is more than half of the block, and also more than half of
  // the window.
  const auto next = large().ahead(*file, 8192, 2 * k_block);
  EXPECT_EQ(next.begin, 3 * k_block);
  EXPECT_EQ(next.end, 5 * k_block);
}

TEST_F(LargeFileTest, ReaderThatGoesBackIsReadAheadFromThereOn) {
  EXPECT_TRUE(large().ahead(*file, 0, 4096).is_empty());
  EXPECT_EQ(large().ahead(*file, 4096, 4096).end, 2 * k_block);
  EXPECT_EQ(large().ahead(*file, 8192, 2 * k_block - 8192).end, 4 * k_block);
  EXPECT_TRUE(large().ahead(*file, 0, 4096).is_empty());
  const auto again = large().ahead(*file, 4096, 4096);
  EXPECT_EQ(again.begin, k_block);
  EXPECT_EQ(again.end, 2 * k_block);
}

TEST_F(LargeFileTest, FileThatIsReadAtRandomIsNotReadAhead) {
  file->advise(LargeFile::Advice::random);
  EXPECT_TRUE(large().ahead(*file, 0, 4096).is_empty());
  EXPECT_TRUE(large().ahead(*file, 4096, 4096).is_empty());
}

TEST_F(LargeFileTest, FetchAheadTakesItsPagesOfItsFirstBlock) {
  const LargeFile::Range wanted{k_block - 5000, 2 * k_block};
  EXPECT_TRUE(large().fetch_ahead(*file, fd, file->fds_left(), wanted));
  EXPECT_EQ(count(Counter::origin_bytes), 2 * k_page_of_file);
  EXPECT_TRUE(large().fetch_ahead(*file, fd, file->fds_left(), {k_block, k_block + 1}));
  EXPECT_EQ(count(Counter::origin_bytes), 3 * k_page_of_file);
}

TEST_F(LargeFileTest, PresentPagesAreNotRequested) {
  for (std::uint64_t at = 0; at < k_size; at += k_block)
    read(at, std::min<std::size_t>(k_block, k_size - at));
  for (std::uint64_t at = 0; at < k_size; at += k_block)
    EXPECT_TRUE(large().ahead(*file, at, k_block).is_empty()) << at;
}

TEST_F(LargeFileTest, SecondReadOfABlockAsksForAllOfIt) {
  read(k_block + 8192, 100);
  EXPECT_TRUE(large().ahead(*file, k_block + 8192, 100).is_empty());
  read(k_block + 40960, 100);
  const auto wanted = large().ahead(*file, k_block + 40960, 100);
  EXPECT_EQ(wanted.begin, k_block);
  EXPECT_EQ(wanted.end, 2 * k_block);
  EXPECT_TRUE(large().fetch_ahead(*file, fd, file->fds_left(), wanted));
  const std::uint64_t reads = count(Counter::origin_reads);
  EXPECT_EQ(read(k_block, k_block), data.substr(k_block, k_block));
  EXPECT_EQ(count(Counter::origin_reads), reads);
}

TEST_F(LargeFileTest, ReopenedFileIsOutOfTheWayOfTheProgramsFds) {
  const OriginFd again = file->reopen();
  EXPECT_GE(again.get(), base::k_high_fd);
  EXPECT_TRUE(file->is_version_of(again.get()));
}

TEST_F(LargeFileTest, ReplacedFileIsNotReopened) {
  ASSERT_EQ(rename(dir.write("next", content_of('b')).c_str(), path.c_str()), 0);
  EXPECT_FALSE(file->reopen());
}

TEST_F(LargeFileTest, FetchAheadAtTheEndOfTheFile) {
  const std::uint64_t last = k_size / k_block * k_block;
  EXPECT_TRUE(large().fetch_ahead(*file, fd, file->fds_left(), {last, k_size}));
  EXPECT_FALSE(
      large().fetch_ahead(*file, fd, file->fds_left(), {last + k_block, last + 2 * k_block}));
  const std::uint64_t reads = count(Counter::origin_reads);
  EXPECT_EQ(read(last, k_size - last), data.substr(last));
  EXPECT_EQ(count(Counter::origin_reads), reads);
}

TEST_F(LargeFileTest, ChangeThroughTheShimLeavesTheFileToTheKernel) {
  EXPECT_EQ(read(0, 100).size(), 100U);
  const auto stat = stat_fd(fd);
  cache->changes().writing_begins(path, *stat);
  EXPECT_EQ(read(0, 100), "");
  cache->changes().writing_ends(*stat);
  EXPECT_EQ(read(0, 100), "");
}

TEST_F(LargeFileTest, ChangeOfAnotherFileOfTheStripeIsIgnored) {
  EXPECT_EQ(read(0, 100).size(), 100U);
  const auto stat = stat_fd(fd);
  writer_stripe_of(cache->region(), *stat).epoch.fetch_add(1);
  EXPECT_EQ(read(0, 100).size(), 100U);
}

TEST_F(LargeFileTest, FileThatIsBeingWrittenIsNotServed) {
  const auto stat = stat_fd(fd);
  cache->changes().writing_begins(path, *stat);
  EXPECT_EQ(large().begin(path, fd), nullptr);
  cache->changes().writing_ends(*stat);
}

TEST_F(LargeFileTest, BytesOfAnotherVersionAreNotPublished) {
  let_the_look_be_old();
  ASSERT_TRUE(tests::TempDir::write_file(path, content_of('b')));
  EXPECT_EQ(read(0, 100), "");
  EXPECT_EQ(count(Counter::origin_bytes), k_page_of_file);
  const int again = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  LargeFile* const other = large().begin(path, again);
  ASSERT_NE(other, nullptr);
  std::string bytes(100, '?');
  EXPECT_EQ(
      large().read(*other, FdEpoch(again), reinterpret_cast<std::byte*>(bytes.data()), 100, 0),
      100);
  EXPECT_EQ(bytes, content_of('b').substr(0, 100));
  other->end();
  close(again);
}

TEST_F(LargeFileTest, TruncatedFileIsLeftToTheKernel) {
  ASSERT_EQ(truncate(path.c_str(), 1000), 0);
  EXPECT_EQ(read(k_size - 100, 100), "");
  EXPECT_EQ(read(0, 5000), "");
}

TEST_F(LargeFileTest, ReadOfAClosedFdPublishesNothing) {
  const FdEpoch before(fd);
  FdEpoch::file_leaves(fd);
  std::array<std::byte, 100> bytes;
  EXPECT_EQ(large().read(*file, before, bytes.data(), bytes.size(), 0), 0);
  EXPECT_EQ(read(0, 100), data.substr(0, 100));
}

TEST_F(LargeFileTest, ReadIsPublishedIfAnotherFdOfTheFileHasLeft) {
  const FdEpoch before(fd);
  file->fd_leaves();
  FdEpoch::file_leaves(fd + 1);
  std::array<std::byte, 100> bytes;
  EXPECT_EQ(large().read(*file, before, bytes.data(), bytes.size(), 0), 100);
}

// For the handler of the next test.
LargeFileTest* g_test = nullptr;
long g_present = 0, g_absent = 0;

TEST_F(LargeFileTest, HandlerThatInterruptsAFetchFetchesNothing) {
  read(0, 100);
  g_test = this;
  struct sigaction action {};
  action.sa_handler = [](int) {
    static std::byte bytes[100];
    const LargeFileTest& test = *g_test;
    g_present = test.large().read(*test.file, FdEpoch(test.fd), bytes, sizeof bytes, 0);
    g_absent = test.large().read(*test.file, FdEpoch(test.fd), bytes, sizeof bytes, 1'000'000);
  };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  {
    const FetchScope scope;
    raise(SIGUSR1);
  }
  EXPECT_EQ(g_present, 100);
  EXPECT_EQ(g_absent, 0);
  raise(SIGUSR1);
  EXPECT_EQ(g_absent, 100);
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(LargeFileTest, MappingConsistsOfPresentPages) {
  read(0, 3 * k_block);
  read(3'000'000, 100);
  std::array<LargeFile::Piece, 8> pieces;
  LargeFile::Range all{0, (k_size + 4095) / 4096 * 4096};
  ASSERT_EQ(large().pieces(*file, all, pieces), 2U);
  EXPECT_TRUE(all.is_empty());
  EXPECT_EQ(pieces[0].at, 0U);
  EXPECT_EQ(pieces[0].bytes, 3 * k_block);
  EXPECT_EQ(pieces[1].at, 3'000'000 / 4096 * 4096U);
  EXPECT_EQ(pieces[1].bytes, k_page_of_file);
}

TEST_F(LargeFileTest, WholeFileIsOnePieceOverAllItsChunks) {
  for (std::uint64_t at = 0; at < k_size; at += 1'000'000)
    read(at, std::min<std::size_t>(1'000'000, k_size - at));
  std::array<LargeFile::Piece, 2> pieces;
  LargeFile::Range all{0, (k_size + 4095) / 4096 * 4096};
  ASSERT_EQ(large().pieces(*file, all, pieces), 1U);
  EXPECT_EQ(pieces[0].bytes, (k_size + 4095) / 4096 * 4096);
}

// The place after the first chunk belongs to another file.
TEST_F(LargeFileTest, ChunksThatDoNotLieSideBySideAreAPieceEach) {
  constexpr std::uint64_t k_begin = k_chunk_bytes - k_page_of_file;
  read(k_begin, 10);
  Chunks chunks(cache->region());
  const FileKey key = key_of_file(path, *stat_fd(fd));
  const std::uint32_t next = chunks.find(key, 0).place() + 1;
  ASSERT_EQ(chunks.make({1, {2, 3}}, 0, next).place(), next);
  read(k_chunk_bytes, 10);
  std::array<LargeFile::Piece, 3> pieces;
  LargeFile::Range range{k_begin, k_begin + 2 * k_page_of_file};
  ASSERT_EQ(large().pieces(*file, range, pieces), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(pieces[i].at, k_begin + i * k_page_of_file);
    EXPECT_EQ(pieces[i].bytes, k_page_of_file);
    const std::uint64_t in_data = pieces[i].in_region - cache->region().layout().data;
    const auto* const bytes = reinterpret_cast<const char*>(cache->region().segment(0) + in_data);
    EXPECT_EQ(std::string(bytes, k_page_of_file), data.substr(pieces[i].at, k_page_of_file));
  }
}

TEST_F(LargeFileTest, PiecesThatDoNotFitComeWithTheNextCall) {
  for (std::uint64_t at = 0; at < 1'000'000; at += 2 * k_block) read(at, 100);
  std::array<LargeFile::Piece, 3> pieces;
  LargeFile::Range range{0, 1 << 20};
  std::size_t all = 0;
  while (!range.is_empty()) all += large().pieces(*file, range, pieces);
  EXPECT_EQ(all, 8U);
}

TEST_F(LargeFileTest, PageThatMappingsShowIsCountedOnce) {
  read(0, 3 * k_block);
  large().note_shown(*file, {0, 2 * k_block});
  EXPECT_EQ(count(Counter::block_mapped), 2 * k_block);
  large().note_shown(*file, {0, 2 * k_block});
  EXPECT_EQ(count(Counter::block_mapped), 2 * k_block);
  large().note_shown(*file, {0, 3 * k_block});
  EXPECT_EQ(count(Counter::block_mapped), 3 * k_block);
}

TEST_F(LargeFileTest, PagesThatTheKernelHasAreKept) {
  auto mapping = base::Mapping::shared(fd, 0, (k_size + 4095) / 4096 * 4096, PROT_READ);
  ASSERT_TRUE(mapping);
  // The region has just been written, so all of it is in memory.
  const auto region_fd = cache->region().reopen(O_RDWR);
  ASSERT_TRUE(region_fd);
  const auto kept = large().keep_pages(*file, *mapping, 0, region_fd->get());
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept, (k_size + 4095) / 4096 * 4096);
  EXPECT_EQ(read(123'456, 1'000'000), data.substr(123'456, 1'000'000));
  EXPECT_EQ(count(Counter::origin_bytes), 0U);
  EXPECT_EQ(large().keep_pages(*file, *mapping, 0, region_fd->get()), 0U);
}

TEST_F(LargeFileTest, PagesOfAnotherVersionAreNotKept) {
  auto mapping = base::Mapping::shared(fd, 0, 1 << 20, PROT_READ);
  const auto region_fd = cache->region().reopen(O_RDWR);
  ASSERT_TRUE(mapping && region_fd);
  let_the_look_be_old();
  ASSERT_TRUE(tests::TempDir::write_file(path, content_of('b')));
  EXPECT_FALSE(large().keep_pages(*file, *mapping, 0, region_fd->get()));
  EXPECT_EQ(count(Counter::block_kept), 0U);
}

// At every place that the chunk can get, an earlier fetch has left bytes past the end of the file.
TEST_F(LargeFileTest, LastPageInAUsedPlaceIsFilledWithZeros) {
  Region& region = cache->region();
  const std::uint64_t last = k_size / k_page_of_file * k_page_of_file;
  for (std::uint32_t at = 0; at < region.layout().chunk_count(); ++at) {
    const std::uint64_t page = std::uint64_t{at} * k_chunk_bytes + last % k_chunk_bytes;
    ASSERT_TRUE(region.reserve_data(page, k_page_of_file));
    const auto memory = region.window(page, k_page_of_file);
    ASSERT_TRUE(memory);
    std::memset(memory->data(), 'x', k_page_of_file);
  }
  EXPECT_EQ(read(k_size - 10, 10), data.substr(k_size - 10));
  const auto claim = Chunks(region).find(key_of_file(path, *stat_fd(fd)), chunk_of(last));
  ASSERT_TRUE(claim);
  for (std::uint64_t i = k_size; i < last + k_page_of_file; ++i)
    ASSERT_EQ(claim.data()[i % k_chunk_bytes], std::byte{0}) << i;
}

TEST_F(LargeFileTest, BytesBehindTheEndOfAnObjectAreZeros) {
  const FileStat stat = *stat_fd(fd);
  LargeFile* const object = large().begin_object("/bucket/f", stat);
  ASSERT_NE(object, nullptr);
  const std::uint64_t last = k_size / k_page_of_file * k_page_of_file;
  LargeFile::Gap gap;
  ASSERT_EQ(large().make_gap(*object, last, k_size, gap), LargeFile::Made::gap);
  std::memset(gap.room(), 'x', k_page_of_file);
  large().fill_gap(*object, gap, /*is_ahead=*/false, cache->stats());
  const auto claim = Chunks(cache->region()).find(key_of_file("/bucket/f", stat), chunk_of(last));
  ASSERT_TRUE(claim);
  for (std::uint64_t i = last; i < last + k_page_of_file; ++i)
    ASSERT_EQ(claim.data()[i % k_chunk_bytes], i < k_size ? std::byte{'x'} : std::byte{0}) << i;
  object->end();
}

// A file that reuses the row of a closed file keeps no state of the closed file.
struct LargeRowTest : LargeFileTest {
  const std::string other_data = content_of('o');
  const std::string other = dir.write("other", other_data);
  int other_fd = open(other.c_str(), O_RDONLY | O_CLOEXEC);

  void SetUp() override {
    // Another test may have found its region full.
    LargeFile::forget_users();
    ASSERT_NE(file, nullptr);
  }
  void TearDown() override {
    LargeFileTest::TearDown();
    close(other_fd);
  }
  void take_row_anew() {
    const LargeFile* const row = file;
    file->end();
    std::swap(fd, other_fd);
    file = large().begin(other, fd);
    ASSERT_EQ(file, row);
  }
};

TEST_F(LargeRowTest, NextFileInheritsNoAdvice) {
  file->advise(LargeFile::Advice::random);
  take_row_anew();
  EXPECT_TRUE(large().ahead(*file, 0, 4096).is_empty());
  EXPECT_EQ(large().ahead(*file, 4096, 4096).end, 2 * k_block);
}

TEST_F(LargeRowTest, FirstReadContinuesNoSequenceOfThePreviousFile) {
  EXPECT_TRUE(large().ahead(*file, 0, 4096).is_empty());
  take_row_anew();
  EXPECT_TRUE(large().ahead(*file, 4096, 4096).is_empty());
}

TEST_F(LargeRowTest, BlockThatAnotherFilesReadsWantedIsNotFetched) {
  read(k_block + 8192, 100);
  read(k_block + 40'960, 100);
  take_row_anew();
  EXPECT_TRUE(large().ahead(*file, 0, 100).is_empty());
}

TEST_F(LargeRowTest, ChunksAreAdjacentRegardlessOfThePreviousFile) {
  read(0, 10);
  take_row_anew();
  for (std::uint64_t at = k_size; at > 0; at -= std::min<std::uint64_t>(at, 1'000'000)) {
    const std::uint64_t begin = at - std::min<std::uint64_t>(at, 1'000'000);
    ASSERT_EQ(read(begin, at - begin), other_data.substr(begin, at - begin));
  }
  std::array<LargeFile::Piece, 2> pieces;
  LargeFile::Range all{0, (k_size + 4095) / 4096 * 4096};
  EXPECT_EQ(large().pieces(*file, all, pieces), 1U);
}

TEST_F(LargeRowTest, NextFileInheritsNeitherChangeNorLocks) {
  file->note_lock(LargeFile::Lock::other);
  cache->changes().writing_begins(path, *stat_fd(fd));
  ASSERT_EQ(read(0, 100), "");
  cache->changes().writing_ends(*stat_fd(fd));
  take_row_anew();
  EXPECT_FALSE(file->is_locked());
  EXPECT_EQ(read(0, 100), other_data.substr(0, 100));
}

TEST_F(LargeRowTest, NextFileDoesNotInheritODirect) {
  file->end();
  file = nullptr;
  const int direct = open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (direct < 0) GTEST_SKIP() << "no O_DIRECT here";
  file = large().begin(path, direct);
  close(direct);
  ASSERT_TRUE(file != nullptr && file->is_direct());
  take_row_anew();
  EXPECT_FALSE(file->is_direct());
}

// A forked child has no thread that fetches the list, so it may use the list's rows.
TEST_F(LargeRowTest, ForkedChildKeepsTheRowOfAFileThatAListHadBefore) {
  file->note_fetched_ahead();
  take_row_anew();
  EXPECT_EQ(tests::run_in_child([this] {
              LargeFile::forget_users();
              const LargeFile* const next = large().begin(path, other_fd);
              return next != nullptr && next != file ? 0 : 1;
            }),
            0);
}

// The copies of fds and the note that the region is full belong to the parent.
TEST_F(LargeRowTest, ForkedChildHasNoCopiesOfFdsAndLooksForRoomItself) {
  while (lease_segment(cache->region(), 1)) {
  }
  ASSERT_EQ(read(0, 100), "");
  ASSERT_FALSE(LargeFile::may_have_room());
  file->copies().begin();
  EXPECT_EQ(tests::run_in_child([this] {
              LargeFile::forget_users();
              return !file->copies().is_any() && LargeFile::may_have_room() ? 0 : 1;
            }),
            0);
  file->copies().end();
}

// A mapped chunk is never replaced, so a chunk that only passes through the region must not be
// mapped.
TEST_F(LargeRowTest, MappingShowsNoChunkThatPasses) {
  Chunks chunks(cache->region());
  for (std::uint32_t number = 0; chunks.make({1, {2, 3}}, number, Chunks::k_none); ++number) {
  }
  ASSERT_EQ(read(0, k_block), data.substr(0, k_block));
  const auto claim = chunks.find(key_of_file(path, *stat_fd(fd)), 0);
  ASSERT_TRUE(claim && claim.is_passing());
  std::array<LargeFile::Piece, 1> piece;
  LargeFile::Range all{0, k_block};
  EXPECT_EQ(large().pieces(*file, all, piece), 0U);
  EXPECT_TRUE(all.is_empty());
  EXPECT_FALSE(cache->region().chunk_row(claim.place()).is_mapped());
}

// A change of a file is reported only if a file of its device has been cached.
TEST_F(LargeFileTest, DeviceOfTheFileIsKnown) {
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(cache->changes().knows_device(stat_fd(fd)->device()));
}

TEST_F(LargeFileTest, PartNotFetchedBecauseOfAStopIsAbsent) {
  const std::atomic<bool> is_stopping{true};
  LargeFile::Range range{0, k_block};
  EXPECT_EQ(large().bring_ahead(*file, fd, range, is_stopping).what, LargeFile::Brought::not_here);
}

TEST_F(LargeFileTest, NothingIsFetchedAheadForAClosedFd) {
  const auto before = file->fds_left();
  file->fd_leaves();
  EXPECT_FALSE(large().fetch_ahead(*file, fd, before, {0, k_block}));
  EXPECT_EQ(count(Counter::origin_bytes), 0U);
}

TEST_F(LargeFileTest, MappingBringsTheAbsentPagesOfItsRange) {
  read(2 * k_block, 10);
  const LargeFile::Range range{k_block + k_page_of_file, 3 * k_block}, all{0, k_size};
  const std::uint64_t bytes = range.end - range.begin;
  ASSERT_TRUE(large().bring_to_map(*file, FdEpoch(fd), range, UINT64_MAX, pace));
  EXPECT_EQ(large().present_bytes(*file, range), bytes);
  EXPECT_EQ(large().present_bytes(*file, all), bytes);
  // A program waited for these bytes, so they do not count as fetched ahead.
  EXPECT_EQ(count(Counter::block_origin), bytes);
  EXPECT_EQ(count(Counter::block_ahead), 0U);
  ASSERT_TRUE(large().bring_to_map(*file, FdEpoch(fd), all, UINT64_MAX, pace));
  EXPECT_EQ(count(Counter::block_origin), k_size);
  EXPECT_EQ(read(0, k_size), data);
}

TEST_F(LargeFileTest, MappingReadsAsMuchAsArrivesSoon) {
  pace.note(16 << 10, 1'000'000'000);
  EXPECT_EQ(pace.most_bytes(), 16U << 10);
  ASSERT_TRUE(large().bring_to_map(*file, FdEpoch(fd), {0, k_block}, UINT64_MAX, pace));
  EXPECT_GE(count(Counter::origin_reads), 2U);
  pace.note(1 << 20, 10'000'000);
  EXPECT_EQ(pace.most_bytes(), 5U << 20);
}

TEST_F(LargeFileTest, MappingGivesUpAtABlockThatCannotBeRead) {
  ASSERT_EQ(truncate(path.c_str(), 2 * k_block), 0);
  EXPECT_FALSE(large().bring_to_map(*file, FdEpoch(fd), {0, k_size}, UINT64_MAX, pace));
}

TEST_F(LargeFileTest, MappingGivesUpIfItsFdIsClosed) {
  const FdEpoch epoch(fd);
  FdEpoch::file_leaves(fd);
  EXPECT_FALSE(large().bring_to_map(*file, epoch, {0, k_size}, UINT64_MAX, pace));
  EXPECT_EQ(large().present_bytes(*file, {0, k_size}), 0U);
}

TEST_F(LargeFileTest, MappingWithoutRoomBringsNothing) {
  while (lease_segment(cache->region(), 1)) {
  }
  EXPECT_FALSE(large().bring_to_map(*file, FdEpoch(fd), {0, k_size}, UINT64_MAX, pace));
  EXPECT_EQ(count(Counter::origin_bytes), 0U);
}

TEST_F(LargeFileTest, RegionWithoutRoomLeavesReadsToTheKernel) {
  while (lease_segment(cache->region(), 1)) {
  }
  EXPECT_EQ(read(0, 100), "");
  EXPECT_EQ(count(Counter::block_misses), 1U);
}

}  // namespace
}  // namespace cube::cache
