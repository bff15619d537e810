// Files that a process had open for writing when it executed another program or died.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <atomic>
#include <csignal>
#include <vector>

#include "cache/region/writers.h"
#include "tests/cache/writers_fixture.h"

namespace cube::cache {
namespace {

using tests::request_for;

// Files that a process has open when its slot is cleared. The process continues to run, as if it
// had executed another program.
TEST_F(WritersTest, FileLeftOpenForWritingIsNotCachedUntilItsLastWriterEnds) {
  const std::string path = dir.write("f", "old");
  const FileStat stat = stat_of(path);
  Region& region = cache->region();
  auto inherited = base::open_fd(path.c_str(), O_WRONLY);
  ASSERT_TRUE(inherited);
  cache->changes().writing_begins(path, stat);
  forget_writers_of(region, region.own_slot());
  EXPECT_EQ(region.header().left_writers.load(), 1U);
  EXPECT_EQ(open(path), "(no pin)");
  EXPECT_TRUE(may_be_written(region, stat)) << "without an fd nobody can be asked";
  EXPECT_EQ(open(path), "(no pin)");
  inherited->reset();
  EXPECT_EQ(open(path), "old");
  EXPECT_FALSE(may_be_written(region, stat));
  EXPECT_EQ(region.header().left_writers.load(), 0U);
}

TEST_F(WritersTest, UnsharedFileOfADeadWriterIsCachedImmediately) {
  const std::string path = dir.write("f", "old"), shared = dir.write("g", "new");
  Region& region = cache->region();
  base::ProcessId& process = region.own_process().process;
  const base::ProcessId self = process;
  // The process becomes another program, and then dies.
  cache->changes().writing_begins(path, stat_of(path));
  cache->changes().writing_begins(shared, stat_of(shared));
  cache->changes().writing_is_shared(stat_of(shared), Sharing::inherited);
  forget_writers_of(region, region.own_slot());
  EXPECT_TRUE(may_be_written(region, stat_of(path)));
  for (std::uint32_t i = 0; i < k_left_writers; ++i) {
    if (region.left_writer(i).word != 0) region.left_writer(i).start_time = self.start_time + 2;
  }
  EXPECT_FALSE(may_be_written(region, stat_of(path)));
  EXPECT_TRUE(may_be_written(region, stat_of(shared))) << "a child may have it";
  EXPECT_EQ(open(path), "old");
  EXPECT_EQ(open(shared), "new") << "the kernel knows of no child that has it";
}

TEST_F(WritersTest, FileBeyondTheTableOfLeftWritersIsNotCached) {
  Region& region = cache->region();
  std::vector<std::string> paths;
  for (std::uint32_t i = 0; i < k_left_writers + 2; ++i) {
    paths.push_back(dir.write(std::to_string(i), "x"));
    cache->changes().writing_begins(paths.back(), stat_of(paths.back()));
    forget_writers_of(region, region.own_slot());
  }
  for (const std::string& path : paths) EXPECT_TRUE(may_be_written(region, stat_of(path))) << path;
  EXPECT_EQ(region.header().left_writers.load(), k_left_writers);
  EXPECT_EQ(open(paths.front()), "x");
  EXPECT_EQ(open(paths.back()), "(no pin)");
}

struct LeftFileTest : WritersTest {
  std::string path = dir.write("f", "old");
  FileStat stat = stat_of(path);

  // A process that has shared the open file has ended, and no other process has it open.
  void SetUp() override {
    cache->changes().writing_begins(path, stat);
    cache->changes().writing_is_shared(stat, Sharing::inherited);
    forget_writers_of(cache->region(), cache->region().own_slot());
  }
};

// A process that opens the file for writing during the query must not cause a signal in the
// fetching program.
TEST_F(LeftFileTest, LeaseQuerySendsTheProgramNoSignal) {
  static std::atomic<int> signals{0};
  tests::Tracee child([&] {
    FileCache* const mine = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(mine != nullptr);
    signal(SIGURG, [](int) { ++signals; });
    const OpenOutcome outcome = mine->open(request_for(path));
    CHILD_CHECK(outcome.pin || outcome.kernel_fd >= 0);
    return 10 + signals.load();
  });
  int leases = 0;
  while (child.to_exit_of(SYS_fcntl)) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    leases += fd < 0 && errno == EWOULDBLOCK ? 1 : 0;
    if (fd >= 0) close(fd);
  }
  EXPECT_EQ(leases, 1);
  EXPECT_EQ(child.exit_status(), 10);
}

TEST_F(LeftFileTest, LeaseQueryLosesNoSignalOfTheProgram) {
  const auto file = base::open_fd(path.c_str(), O_RDONLY);
  ASSERT_TRUE(file);
  sigset_t urgent, before, pending;
  sigemptyset(&urgent);
  sigaddset(&urgent, SIGURG);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &urgent, &before), 0);
  raise(SIGURG);
  EXPECT_FALSE(may_be_written(cache->region(), stat, file->get()));
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGURG), 1);
  const timespec now{};
  while (sigtimedwait(&urgent, nullptr, &now) == SIGURG) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(fcntl(file->get(), F_GETOWN), 0);
  EXPECT_EQ(fcntl(file->get(), F_GETSIG), 0);
}

// A fetch must not combine a stat from before the last write with bytes from after it.
TEST_F(LeftFileTest, IsRevalidatedByTheProcessThatFindsItNoLongerWritten) {
  const auto file = base::open_fd(path.c_str(), O_RDONLY);
  ASSERT_TRUE(file);
  ChangeWatch earlier(cache->region());
  ASSERT_FALSE(earlier.watch(stat));
  ChangeWatch other(cache->region());
  RamTier tier(cache->region());
  FillRules rules;
  rules.max_file = 1 << 20;
  RecordFill fetch(tier, rules, path);
  FileStat old = stat;
  old.modified.seconds = old.changed.seconds = 1;
  ASSERT_EQ(fetch.accept({.stat = old, .is_physical = true, .fd = file->get()}),
            RecordFill::Next::read);
  EXPECT_TRUE(fetch.wants_second_look());
  EXPECT_TRUE(fetch.is_unchanged()) << "by its own finding";
  ASSERT_TRUE(other.watch(stat, file->get())) << "nobody writes it by now";
  EXPECT_FALSE(other.is_unchanged()) << "its stat is from before";
  RecordFill next(tier, rules, path);
  ASSERT_EQ(next.accept({.stat = old, .is_physical = true, .fd = file->get()}),
            RecordFill::Next::read);
  EXPECT_FALSE(next.wants_second_look());
}

}  // namespace
}  // namespace cube::cache
