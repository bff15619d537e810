// The result of a fetch with both engines: the whole file, as its stat describes it, or the reason
// for the failure.
#include <dirent.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <set>
#include <string_view>
#include <thread>

#include "cache/base/unique_fd.h"
#include "tests/prefetch/test_client.h"
#include "tests/support/temp_dir.h"

namespace cube::prefetch::testing {
namespace {

struct Engines : BothEngines {
  tests::TempDir dir;

  static std::string bytes(std::size_t size, unsigned seed) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i)
      text[i] = static_cast<char>((i * 2654435761U + seed) >> 11);
    return text;
  }

  // The flags of each fd of this file in the fd table of the calling thread.
  static std::vector<int> flags_of_open(const std::string& path) {
    std::vector<int> found;
    DIR* const stream = opendir("/proc/thread-self/fd");
    while (const dirent* const entry = readdir(stream)) {
      char target[4096];
      const ssize_t n = readlinkat(dirfd(stream), entry->d_name, target, sizeof target);
      if (n > 0 && std::string_view(target, static_cast<std::size_t>(n)) == path) {
        found.push_back(fcntl(std::stoi(entry->d_name), F_GETFL));
      }
    }
    closedir(stream);
    return found;
  }
};

TEST_P(Engines, FetchTheWholeFile) {
  START_ENGINE();
  unsigned seed = 1;
  for (const std::size_t size : {0UL, 1UL, 4095UL, 4096UL, 110'000UL, 1UL << 20, 16UL << 20}) {
    const std::string content = bytes(size, seed++);
    const Order& one = fetch(dir.write("f" + std::to_string(size), content));
    EXPECT_EQ(one.result.ending, Ending::whole) << size;
    EXPECT_TRUE(one.content() == content) << size;
    EXPECT_EQ(one.result.bytes, size);
    EXPECT_EQ(one.result.opens, 1);
    EXPECT_EQ(one.result.stats, 1);
    EXPECT_EQ(one.file.stat.size, size);
    EXPECT_TRUE(one.file.is_physical);
  }
}

TEST_P(Engines, FetchThousandsOfFilesAtEveryDepth) {
  START_ENGINE();
  constexpr unsigned k_files = 500;
  std::vector<std::string> paths, contents;
  for (unsigned i = 0; i < k_files; ++i) {
    contents.push_back(bytes(i * 37 % 9000, i));
    paths.push_back(dir.write("f" + std::to_string(i), contents.back()));
  }
  unsigned expected = 0;
  for (const unsigned depth : {1U, 3U, 32U, 128U, 2U, 1000U, 0U}) {
    engine->set_depth(depth);
    const std::size_t first = orders.size();
    for (const auto& path : paths) engine->submit(order(path));
    client.wait_for(expected += k_files);
    for (unsigned i = 0; i < k_files; ++i) {
      const Order& one = *orders[first + i];
      ASSERT_EQ(one.result.ending, Ending::whole) << i << " at depth " << depth;
      ASSERT_TRUE(one.content() == contents[i]) << i << " at depth " << depth;
      ASSERT_TRUE(one.guard_is_whole);
    }
  }
  engine->drain();
  for (const auto& one : orders) EXPECT_EQ(one->times_ended, 1);
}

TEST_P(Engines, KeepNoMoreInFlightThanTheDepth) {
  START_ENGINE({.depth = 3});
  const std::string path = dir.write("f", bytes(5000, 1));
  // Counts a fetch from its request for room to its end. The list of open fds cannot be used,
  // because reading it is not atomic.
  std::atomic<std::size_t> in_flight{0}, most{0};
  client.when_asked = [&](Order&) {
    const std::size_t n = ++in_flight;
    std::size_t seen = most;
    while (n > seen && !most.compare_exchange_weak(seen, n)) {
    }
  };
  client.when_ended = [&](Order&) { --in_flight; };
  for (const unsigned depth : {3U, 1U, 5U}) {
    engine->set_depth(depth);
    most = 0;
    for (int i = 0; i < 300; ++i) engine->submit(order(path));
    engine->drain();
    EXPECT_GE(most, 1U);
    EXPECT_LE(most, depth);
  }
}

TEST_P(Engines, OpenWithoutBlockingButReadBlocking) {
  START_ENGINE();
  const std::string path = dir.write("f", bytes(5000, 1));
  std::vector<int> at_open, at_end;
  client.when_asked = [&](Order&) { at_open = flags_of_open(path); };
  client.when_ended = [&](Order&) { at_end = flags_of_open(path); };
  EXPECT_EQ(fetch(path).result.ending, Ending::whole);
  ASSERT_EQ(at_open.size(), 1U);
  ASSERT_EQ(at_end.size(), 1U);
  EXPECT_TRUE(at_open[0] & O_NONBLOCK) << "a FIFO would hold the fetch";
  // Kernels before 5.13 fail immediately if a ring would have to wait for such a file; a plain read
  // does not fail.
  EXPECT_TRUE(GetParam() == Kind::threads || (at_end[0] & O_NONBLOCK) == 0);
}

TEST_P(Engines, ReportTheKernelsErrors) {
  START_ENGINE();
  ASSERT_EQ(symlink("loop", (dir / "loop").c_str()), 0);
  const std::pair<std::string, int> cases[] = {{dir / "none", ENOENT},
                                               {dir.write("f", "x") + "/x", ENOTDIR},
                                               {dir / "loop", ELOOP},
                                               {dir / std::string(300, 'n'), ENAMETOOLONG},
                                               {"/" + std::string(5000, 'n'), ENAMETOOLONG},
                                               {"", ENOENT}};
  for (const auto& [path, error] : cases) {
    const Order& one = fetch(path);
    EXPECT_EQ(one.result.ending, Ending::failed) << path;
    EXPECT_EQ(one.result.error, error) << path;
    EXPECT_EQ(one.asked, 0);
  }
}

TEST_P(Engines, DoNotWaitForSpecialFiles) {
  START_ENGINE();
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  ASSERT_EQ(mkdir((dir / "d").c_str(), 0700), 0);
  for (const char* name : {"fifo", "d"}) {
    const Order& one = fetch(dir / name);
    EXPECT_EQ(one.result.ending, Ending::declined) << name;
    EXPECT_EQ(one.result.reason, Client::k_not_regular);
    EXPECT_EQ(one.result.reads, 0);
    EXPECT_FALSE(one.result.has_room);
  }
  EXPECT_TRUE(S_ISDIR(orders.back()->file.stat.mode));
}

TEST_P(Engines, OpenNoSpecialFile) {
  START_ENGINE();
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink("fifo", (dir / "link").c_str()), 0);
  const base::UniqueFd watch(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ASSERT_GE(inotify_add_watch(watch.get(), (dir / "fifo").c_str(), IN_OPEN), 0);
  char event[4096];
  for (const char* name : {"fifo", "link"}) {
    const Order& one = fetch(dir / name);
    EXPECT_EQ(one.result.reason, Client::k_not_regular) << name;
    EXPECT_TRUE(S_ISFIFO(one.file.stat.mode));
    EXPECT_EQ(one.file.is_physical, std::string_view(name) == "fifo");
    // Opening the FIFO would have released a waiting writer.
    EXPECT_EQ(read(watch.get(), event, sizeof event), -1) << name;
    EXPECT_EQ(errno, EAGAIN);
  }
}

TEST_P(Engines, ReadNothingOfDeclinedFiles) {
  START_ENGINE();
  client.most = 100;
  const Order& one = fetch(dir.write("f", bytes(101, 1)));
  EXPECT_EQ(one.result.ending, Ending::declined);
  EXPECT_EQ(one.result.reason, Client::k_too_large);
  EXPECT_EQ(one.result.reads, 0);
  EXPECT_EQ(fetch(dir.write("g", bytes(100, 1))).result.ending, Ending::whole);
}

TEST_P(Engines, DistinguishLinksFromPlainPaths) {
  START_ENGINE();
  const std::string path = dir.write("f", "abc");
  ASSERT_EQ(symlink(".", (dir / "link").c_str()), 0);
  ASSERT_EQ(symlink("f", (dir / "g").c_str()), 0);
  for (const char* name : {"link/f", "g"}) {
    const Order& one = fetch(dir / name);
    EXPECT_EQ(one.result.ending, Ending::whole) << name;
    EXPECT_EQ(one.content(), "abc");
    EXPECT_FALSE(one.file.is_physical) << name;
  }
  EXPECT_TRUE(fetch(path).file.is_physical) << "a flight that had met a link is used again";
}

// The file changes between the stat and the read, when the engine asks the client for room.
TEST_P(Engines, DetectAFileThatChangesDuringTheRead) {
  START_ENGINE();
  const std::string content = bytes(10'000, 1);
  const std::string path = dir.write("f", content);
  const auto after = [&](const std::function<void()>& change) {
    EXPECT_TRUE(tests::TempDir::write_file(path, content));
    client.when_asked = [&](Order&) { change(); };
    const Order& one = fetch(path);
    EXPECT_TRUE(one.result.has_room);
    EXPECT_FALSE(one.result.room_is_lost);
    return one.result.ending;
  };
  EXPECT_EQ(after([] {}), Ending::whole);
  EXPECT_EQ(after([&] { tests::TempDir::write_file(path, content + "x"); }), Ending::changed)
      << "grown";
  for (const off_t size : {9'999, 4'096, 0}) {
    EXPECT_EQ(after([&] { EXPECT_EQ(truncate(path.c_str(), size), 0); }), Ending::changed)
        << "truncated to " << size;
  }
  const auto touch = [&] {
    const timespec then[2] = {{1000, 0}, {1000, 0}};
    utimensat(AT_FDCWD, path.c_str(), then, 0);
  };
  EXPECT_EQ(after(touch), Ending::whole) << "nobody asked to look again";
  client.look_again = true;
  EXPECT_EQ(after(touch), Ending::changed) << "looked again";
  EXPECT_EQ(orders.back()->result.stats, 2);
  const auto write_and_put_time_back = [&] {
    const auto before = *cache::stat_path(AT_FDCWD, path.c_str(), 0);
    const timespec times[2] = {{0, UTIME_OMIT},
                               {before.modified.seconds, before.modified.nanoseconds}};
    // The ctime advances only with the kernel's tick.
    while (cache::stat_path(AT_FDCWD, path.c_str(), 0)->changed == before.changed) {
      tests::TempDir::write_file(path, bytes(10'000, 2));
      utimensat(AT_FDCWD, path.c_str(), times, 0);
    }
  };
  EXPECT_EQ(after(write_and_put_time_back), Ending::changed) << "looked again";
  EXPECT_EQ(after([] {}), Ending::whole);
}

TEST_P(Engines, DetectAFileThatReportsAWrongSize) {
  START_ENGINE();
  EXPECT_EQ(fetch("/proc/self/status").result.ending, Ending::changed);
}

TEST_P(Engines, TakeSubmissionsFromSeveralThreads) {
  START_ENGINE({.depth = 8});
  const std::string content = bytes(3000, 5);
  const std::string path = dir.write("f", content);
  std::vector<std::unique_ptr<Order>> of[4];
  std::vector<std::thread> threads;
  for (auto& own : of) {
    for (int i = 0; i < 200; ++i) own.push_back(std::make_unique<Order>(path));
    threads.emplace_back([&own, this] {
      for (auto& one : own) engine->submit(*one);
    });
  }
  for (auto& thread : threads) thread.join();
  engine->drain();
  for (const auto& own : of) {
    for (const auto& one : own)
      EXPECT_TRUE(one->times_ended == 1 && one->result.ending == Ending::whole &&
                  one->content() == content);
  }
}

// Idle threads sleep longer than the test's time limit, so the test fails if a thread is not woken.
TEST_P(Engines, LoseNoWakeUp) {
  START_ENGINE({.depth = 4, .idle_ms = 3'600'000});
  const std::string path = dir.write("f", "abc");
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) {
      Order own(path);
      engine->submit(own);
      engine->drain();
    }
  });
  for (int i = 0; i < 500; ++i) {
    const std::size_t first = orders.size();
    for (int n = 0; n <= i % 7; ++n) order(path);
    for (std::size_t n = first; n < orders.size(); ++n) engine->submit(*orders[n]);
    if (i % 50 == 0) engine->set_depth(1 + static_cast<unsigned>(i) / 50 % 4);
    engine->drain();
  }
  other.join();
  for (const auto& one : orders) EXPECT_EQ(one->result.ending, Ending::whole);
}

TEST_P(Engines, AcceptSubmissionsFromCallbacks) {
  START_ENGINE({.depth = 2});
  const std::string path = dir.write("f", "abc");
  std::atomic<unsigned> left{50};
  for (int i = 0; i < 51; ++i) order(path);
  client.when_ended = [&](Order&) {
    if (const unsigned n = left.fetch_sub(1); n >= 1 && n <= 50) engine->submit(*orders[n]);
  };
  engine->submit(*orders[0]);
  client.wait_for(51);
}

INSTANTIATE_TEST_SUITE_P(, Engines, ::testing::Values(Kind::threads, Kind::uring), name_of);

}  // namespace
}  // namespace cube::prefetch::testing
