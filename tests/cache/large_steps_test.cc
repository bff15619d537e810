// A reader of a large file is stopped between two instructions: at that moment the file is changed
// or closed, or the reader is killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "cache/base/clock.h"
#include "cache/fill/large/large_file.h"
#include "cache/region/writers.h"
#include "tests/support/sanitizers.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::Tracee;

constexpr std::uint64_t k_large_block = 1 << 20, k_large_step = 256 << 10, k_large_page = 4096;
constexpr std::size_t k_large_size = 4'000'001;

LargeFile* g_closed = nullptr;  // closed by the handler of a child

struct LargeSteps : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache{64 * tests::k_mib, [](base::Config& config) {
                           config.max_file = 100'000;
                           config.block = k_large_block;
                         }};
  const std::string data = tests::content_of("f", 1, k_large_size);
  const std::string path = dir.write("f", data);

  // A process of the node that has the file open.
  struct Reader {
    FileCache* cache;
    int fd = -1;
    LargeFile* file = nullptr;

    explicit Reader(FileCache* by) : cache(by) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() { close_file(); }
    bool open_file(const std::string& name) {
      fd = open(name.c_str(), O_RDONLY | O_CLOEXEC);
      // A change within this millisecond could be followed by a second change that no stat reveals.
      const std::uint64_t until = base::monotonic_ns() + 60'000'000'000;
      while (file == nullptr && base::monotonic_ns() < until) file = cache->large().begin(name, fd);
      return file != nullptr;
    }
    void close_file() {
      if (file != nullptr) file->end();
      if (fd >= 0) close(fd);
      file = nullptr;
      fd = -1;
    }
    std::string read(std::uint64_t at, std::size_t n) const {
      std::string bytes(n, '?');
      const long got = cache->large().read(*file, FdEpoch(fd),
                                           reinterpret_cast<std::byte*>(bytes.data()), n, at);
      bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
      return bytes;
    }
  };
  FileCache* attach() const { return tests::attach_cache(cache.config, cache.options.job); }
  // A process that has the file open and stops before `body`.
  template <typename Body>
  Tracee reader_before(Body body) const {
    return Tracee([this, &body] {
      FileCache* const own = attach();
      CHILD_CHECK(own != nullptr);
      Reader reader(own);
      CHILD_CHECK(reader.open_file(path));
      raise(SIGSTOP);
      return body(reader);
    });
  }
  // Writes one more byte through the library.
  void change() const {
    const auto stat = stat_path(AT_FDCWD, path.c_str(), 0);
    cache->changes().writing_begins(path, *stat);
    EXPECT_EQ(truncate(path.c_str(), static_cast<off_t>(stat->size + 1)), 0);
    cache->changes().writing_ends(*stat);
  }
};

// Another file of its stripe was written, so the file is revalidated; it is changed during the
// revalidation.
TEST_F(LargeSteps, FileChangedDuringARevalidationIsLeftToTheKernel) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  Tracee child([&] {
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr);
    while (true) {
      Reader reader(own);
      CHILD_CHECK(reader.open_file(path));
      CHILD_CHECK(reader.read(0, 10).size() == 10);
      raise(SIGSTOP);
      reader.read(0, 10);
      raise(SIGSTOP);
      CHILD_CHECK(reader.read(0, 10).empty());
    }
  });
  bool is_whole = false;
  for (long steps = 0; !is_whole && steps < 8000; steps += steps < 160 ? 1 : 149) {
    ASSERT_TRUE(child.to_stop()) << "bytes from before the change are shown, at step " << steps;
    const auto stat = stat_path(AT_FDCWD, path.c_str(), 0);
    writer_stripe_of(cache->region(), *stat).epoch.fetch_add(1);
    ASSERT_TRUE(child.to_exit_of(SYS_statx));
    child.step_on(steps);
    is_whole = child.is_at_raise();
    change();
    if (is_whole) break;
    ASSERT_TRUE(child.to_stop());
  }
  EXPECT_TRUE(is_whole) << "the read has more steps than that";
}

// The stat is less than 100 ms old, so that the file is not revalidated.
TEST_F(LargeSteps, BytesReadDuringAChangeAreNotPublished) {
  const auto before = stat_path(AT_FDCWD, path.c_str(), 0);
  Tracee child = reader_before([](Reader& reader) {
    reader.read(0, 10);
    return 0;
  });
  ASSERT_TRUE(child.to_stop());
  ASSERT_TRUE(child.to_exit_of(SYS_pread64));
  change();
  while (child.to_stop()) {
  }
  EXPECT_EQ(child.exit_status(), 0);
  EXPECT_EQ(cache->large().present_bytes(path, *before, {0, k_large_page}), 0U);
}

// A mount may still keep the attributes of the earlier version.
TEST_F(LargeSteps, OpenAsksTheServerForTheVersion) {
  Tracee child([&] {
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    raise(SIGSTOP);
    own->large().begin(path, fd);
    raise(SIGSTOP);
    return 0;
  });
  ASSERT_TRUE(child.to_stop());
  bool asks = false;
  while (child.to_system_call() && !child.is_at_raise())
    asks = asks || (child.at_entry_of(SYS_statx) && (child.argument(2) & AT_STATX_FORCE_SYNC) != 0);
  EXPECT_TRUE(asks);
}

TEST_F(LargeSteps, ReaderThatWaitsForABlockIsWokenAfterEachStepAhead) {
  Tracee child = reader_before([](Reader& reader) {
    reader.cache->large().fetch_ahead(*reader.file, reader.fd, reader.file->fds_left(),
                                      {0, k_large_block});
    return 0;
  });
  ASSERT_TRUE(child.to_stop());
  ASSERT_TRUE(child.to_entry_of(SYS_pread64));
  // The flights of the block and of the reader ahead (LargeFile::begin_reading).
  std::uint32_t held = 0;
  for (std::uint32_t i = 0; i < k_flight_slots; ++i) {
    FlightSlot& slot = cache->region().flight_slot(i);
    if (slot.word.load() == 0) continue;
    ++held;
    // A reader does this before it sleeps.
    slot.waiting.store(1);
  }
  EXPECT_EQ(held, 2U);
  const auto wakeups = [this] {
    std::uint32_t all = 0;
    for (std::uint32_t i = 0; i < k_flight_slots; ++i)
      all += cache->region().flight_slot(i).wakeups.load();
    return all;
  };
  const std::uint32_t before = wakeups();
  ASSERT_TRUE(child.to_entry_of(SYS_pread64));
  EXPECT_EQ(wakeups(), before + 1);
}

// A read-ahead must neither prolong the program's lock nor keep its mount busy.
TEST_F(LargeSteps, ReadAheadEndsWithinOneStepOfAClose) {
  if (tests::k_tsan) GTEST_SKIP() << "ThreadSanitizer delivers signals later than the kernel";
  for (int n = 1; n <= 2; ++n) {
    SCOPED_TRACE(n);
    const std::uint64_t begin = static_cast<std::uint64_t>(n) * k_large_block;
    Tracee child([&] {
      FileCache* const own = attach();
      CHILD_CHECK(own != nullptr);
      Reader reader(own);
      CHILD_CHECK(reader.open_file(path));
      g_closed = reader.file;
      signal(SIGUSR1, [](int) { g_closed->fd_leaves(); });
      raise(SIGSTOP);
      own->large().fetch_ahead(*reader.file, reader.fd, reader.file->fds_left(),
                               {begin, begin + k_large_block});
      const auto read =
          own->stats().counters[static_cast<std::size_t>(Counter::block_origin)].load();
      return static_cast<int>(10 + read / k_large_step);
    });
    ASSERT_TRUE(child.to_stop());
    ASSERT_TRUE(child.to_exit_of(SYS_pread64, n));
    child.send(SIGUSR1);
    while (child.to_stop()) {
    }
    EXPECT_GE(child.exit_status(), 10 + n);
    EXPECT_LE(child.exit_status(), 10 + n + 1);
  }
}

// The reader is killed at each system call of a read that fetches, and at some instructions after
// it.
TEST_F(LargeSteps, ReaderThatIsKilledAnywhereLeavesNoPinNoFlightAndNoWrongByte) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  constexpr long k_behind[] = {0, 11, 97};
  Reader reader(cache.cache);
  ASSERT_TRUE(reader.open_file(path));
  tests::Survivor survivor(cache->region());
  tests::KillCounts counts;
  std::uint64_t at = 0;
  bool is_whole = false;
  for (int call = 1; !is_whole && call < 200; ++call) {
    for (const long steps : k_behind) {
      Tracee child = reader_before([&](Reader& other) {
        CHILD_CHECK(other.read(at, 2 * k_large_page).size() == 2 * k_large_page);
        raise(SIGSTOP);
        return 0;
      });
      ASSERT_TRUE(child.to_stop());
      for (int i = 0; i < call && !is_whole; ++i)
        is_whole = !child.to_system_call() || child.is_at_raise();
      if (!is_whole) child.step_on(steps);
      child.kill();
      ++counts.kills;
      survivor.check_tables(counts);
      for (std::uint32_t place = 0; place < cache->region().layout().chunk_count(); ++place) {
        const auto state = SegmentWord::of_word(cache->region().chunk_row(place).word.load()).state;
        ASSERT_TRUE(state == SegmentState::free || state == SegmentState::sealed)
            << "place " << place << ", call " << call;
      }
      ASSERT_EQ(reader.read(at, 2 * k_large_page), data.substr(at, 2 * k_large_page))
          << "call " << call << ", step " << steps;
      at += 3 * k_large_page;
    }
  }
  counts.print("within a read of a large file");
  EXPECT_TRUE(is_whole);
  EXPECT_TRUE(counts.is_clean());
}

}  // namespace
}  // namespace cube::cache
