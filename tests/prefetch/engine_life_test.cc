// Start and end of the engines. The host must not notice them: its descriptors, signals and
// children stay the same.
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <semaphore>
#include <set>
#include <thread>

#include "tests/prefetch/test_client.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

namespace cube::prefetch::testing {
namespace {

struct EngineLife : BothEngines {
  tests::TempDir dir;

  // The fds that this process's first thread has open.
  static std::set<std::string> host_descriptors(const std::string& but = {}) {
    std::set<std::string> found;
    DIR* const stream = opendir(("/proc/" + std::to_string(getpid()) + "/fd").c_str());
    while (const dirent* const entry = readdir(stream)) found.insert(entry->d_name);
    closedir(stream);
    found.erase(but);
    return found;
  }
  static std::string own_number_of_a_directory() {
    DIR* const stream = opendir("/proc");
    const int number = dirfd(stream);
    closedir(stream);
    return std::to_string(number);
  }
  static std::uint64_t own_blocked_signals() {
    char text[4096];
    const long n = base::sys::read_small_file("/proc/thread-self/status", text, sizeof text - 1);
    if (n <= 0) return 0;
    text[n] = '\0';
    const char* const at = std::strstr(text, "SigBlk:\t");
    return at == nullptr ? 0 : std::strtoull(at + 8, nullptr, 16);
  }
};

TEST_P(EngineLife, StopCancelsWaitingFetches) {
  START_ENGINE({.depth = 1});
  const std::string path = dir.write("f", "abc");
  std::binary_semaphore inside{0}, go_on{0};
  std::atomic<bool> stops{true};
  client.when_asked = [&](Order&) {
    if (!stops.exchange(false)) return;
    inside.release();
    go_on.acquire();
  };
  for (int i = 0; i < 10; ++i) engine->submit(order(path));
  inside.acquire();
  engine->cancel_waiting();
  EXPECT_EQ(client.ended_so_far(), 9U);
  engine->submit(order(path));
  go_on.release();
  EXPECT_EQ(engine->stop(30'000), 0U);
  EXPECT_EQ(client.ended_so_far(), 11U);
  for (int i = 1; i < 10; ++i) EXPECT_EQ(orders[i]->result.ending, Ending::cancelled);
  engine->submit(order(path));
  EXPECT_EQ(orders.back()->result.ending, Ending::cancelled) << "after the stop";
}

TEST_P(EngineLife, StopWaitsForAClientThatIsInside) {
  START_ENGINE({.depth = 1});
  std::binary_semaphore inside{0}, go_on{0};
  std::atomic<bool> has_left{false};
  client.when_asked = [&](Order&) {
    inside.release();
    go_on.acquire();
    has_left = true;
  };
  engine->submit(order(dir.write("f", "abc")));
  inside.acquire();
  std::thread stopper([&] {
    engine->stop(0);
    EXPECT_TRUE(has_left) << "the client was still being called";
  });
  go_on.release();
  stopper.join();
  EXPECT_EQ(orders[0]->times_ended, 1);
}

TEST_P(EngineLife, ShowsTheHostNoDescriptor) {
  // The host's listing itself needs an fd.
  const auto before = host_descriptors(own_number_of_a_directory());
  START_ENGINE({.depth = 4});
  std::atomic<int> looks{0}, strangers{0};
  client.when_asked = [&](Order&) {
    ++looks;
    if (host_descriptors() != before) ++strangers;
  };
  const std::string path = dir.write("f", "abc");
  for (int i = 0; i < 20; ++i) engine->submit(order(path));
  engine->drain();
  EXPECT_EQ(looks, 20);
  EXPECT_EQ(strangers, 0);
}

TEST_P(EngineLife, AHostThatClosesAllItsDescriptorsChangesNothing) {
  const std::string content(50'000, 'q');
  const std::string path = dir.write("f", content);
  EXPECT_EQ(tests::run_in_child([&] {
              start({.depth = 4});
              if (engine == nullptr) return IsSkipped() ? 0 : 1;
              for (int i = 0; i < 100; ++i) {
                engine->submit(order(path));
                // If the engine had used this fd number, it would now use this file.
                base::sys::raw(SYS_close_range, 3, 100'000, 0);
                ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
              }
              engine->drain();
              for (const auto& one : orders)
                CHILD_CHECK(one->result.ending == Ending::whole && one->content() == content);
              return 0;
            }),
            0);
}

TEST_P(EngineLife, AForkedChildHasNoEngine) {
  START_ENGINE({.depth = 2});
  const std::string path = dir.write("f", "abc");
  fetch(path);
  EXPECT_EQ(tests::run_in_child([&] {
              Order& one = order(path);
              engine->set_depth(3);
              engine->submit(one);
              CHILD_CHECK(one.times_ended == 1 && one.result.ending == Ending::cancelled);
              engine->drain();
              engine->cancel_waiting();
              CHILD_CHECK(engine->stop(10'000) == 0);
              engine.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(fetch(path).result.ending, Ending::whole) << "the parent's goes on";
}

TEST_P(EngineLife, ThreadsTakeNoSignalsOfTheHost) {
  START_ENGINE({.depth = 4});
  std::uint64_t blocked = 0;
  client.when_asked = [&](Order&) { blocked = own_blocked_signals(); };
  fetch(dir.write("f", "abc"));
  for (const int signal :
       {SIGTERM, SIGINT, SIGCHLD, SIGALRM, SIGUSR1, SIGPROF, SIGSEGV, SIGRTMAX}) {
    EXPECT_TRUE(blocked >> (signal - 1) & 1) << signal;
  }
  // This is libc's internal signal, by which setuid() reaches every thread. If a thread blocked it,
  // setuid() would never return.
  EXPECT_FALSE(blocked >> 32 & 1);
}

TEST_P(EngineLife, FetchWithoutDescriptorsFailsButTheNextIsTried) {
  const std::string path = dir.write("f", "abc");
  EXPECT_EQ(tests::run_in_child([&] {
              start({.depth = 4});
              if (engine == nullptr) return IsSkipped() ? 0 : 1;
              struct ::rlimit before {};
              getrlimit(RLIMIT_NOFILE, &before);
              const struct ::rlimit none {
                0, before.rlim_max
              };
              setrlimit(RLIMIT_NOFILE, &none);
              engine->submit(order(path));
              engine->drain();
              CHILD_CHECK(orders.back()->result.ending == Ending::failed &&
                          orders.back()->result.error == EMFILE);
              setrlimit(RLIMIT_NOFILE, &before);
              engine->submit(order(path));
              engine->drain();
              CHILD_CHECK(orders.back()->result.ending == Ending::whole);
              return 0;
            }),
            0);
}

INSTANTIATE_TEST_SUITE_P(, EngineLife, ::testing::Values(Kind::threads, Kind::uring), name_of);

// Idle threads end, and start again.
TEST(ThreadEngine, IdleThreadsEnd) {
  Client client;
  std::string why;
  const auto engine = make(Kind::threads, client, {.depth = 8, .idle_ms = 1}, why);
  ASSERT_NE(engine, nullptr) << why;
  const tests::TempDir dir;
  const std::string path = dir.write("f", "abc");
  const auto count = [] {
    struct ::stat task {};
    stat("/proc/self/task", &task);
    return task.st_nlink;
  };
  const auto keeper_only = count();
  std::vector<std::unique_ptr<Order>> orders;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 50; ++i)
      engine->submit(*orders.emplace_back(std::make_unique<Order>(path)));
    engine->drain();
    while (count() > keeper_only)
      std::this_thread::yield();  // only the test's time limit bounds this
  }
  for (const auto& one : orders) EXPECT_EQ(one->result.ending, Ending::whole);
}

// Makes one system call fail in this process and its future threads.
void refuse(long number, int error) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{4, code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

TEST(EngineRefused, ReasonIsGivenIfIoUringIsUnavailable) {
  for (const int error : {ENOSYS, EPERM}) {
    EXPECT_EQ(tests::run_in_child([&] {
                refuse(SYS_io_uring_setup, error);
                Client client;
                std::string why;
                CHILD_CHECK(make(Kind::uring, client, {}, why) == nullptr);
                CHILD_CHECK(why.find("io_uring_setup") != std::string::npos);
                return 0;
              }),
              0);
  }
}

TEST(EngineRefused, StartFailsWithoutAPrivateFdTable) {
  for (const Kind kind : {Kind::threads, Kind::uring}) {
    EXPECT_EQ(tests::run_in_child([&] {
                refuse(SYS_close_range, ENOSYS);
                Client client;
                std::string why;
                CHILD_CHECK(make(kind, client, {}, why) == nullptr);
                CHILD_CHECK(why.find("close_range") != std::string::npos);
                return 0;
              }),
              0);
  }
}

TEST(EngineRefused, LinksAreReadFromProcWithoutOpenat2) {
  EXPECT_EQ(tests::run_in_child([&] {
              refuse(SYS_openat2, ENOSYS);
              const tests::TempDir dir;
              const std::string path = dir.write("f", "abc");
              CHILD_CHECK(symlink("f", (dir / "g").c_str()) == 0);
              Client client;
              std::string why;
              const auto engine = make(Kind::threads, client, {}, why);
              CHILD_CHECK(engine != nullptr);
              Order plain(path), linked(dir / "g");
              engine->submit(plain);
              engine->submit(linked);
              engine->drain();
              CHILD_CHECK(plain.result.ending == Ending::whole && plain.file.is_physical);
              CHILD_CHECK(linked.result.ending == Ending::whole && !linked.file.is_physical);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace cube::prefetch::testing
