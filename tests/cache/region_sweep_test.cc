// The next job of the user, under any name, removes what killed processes have left.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <csignal>
#include <functional>

#include "cache/region/region.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::RegionName;
using tests::run_in_child;

enum class Age { young, old };

// Leaves a region of that age behind. A region that is Age::old is no longer spared for a creator
// that may be about to join it. `change` is called last.
void leave_behind(RegionName& name, Age age, const std::function<void(Region&)>& change = {}) {
  ASSERT_EQ(run_in_child([&] {
              name.options.job = base::current_process();
              Region* const region = tests::attach(name.options);
              CHILD_CHECK(region != nullptr);
              if (age == Age::old) region->header().created_ns = 1;
              if (change) change(*region);
              raise(SIGKILL);
              return 0;
            }),
            -SIGKILL);
  // Another process of the user that attaches at the same time, perhaps in another test, may
  // already have removed an old region.
}

void begin_a_job() {
  const RegionName other;
  ASSERT_EQ(run_in_child([&] {
              Region* const region = tests::attach(other.options);
              CHILD_CHECK(region != nullptr);
              region->detach();
              return 0;
            }),
            0);
}

// The region must not stay in memory until a job of the same name runs.
TEST(RegionSweep, RemovesTheRegionOfKilledProcesses) {
  for (const Age age : {Age::young, Age::old}) {
    RegionName name;
    leave_behind(name, age);
    begin_a_job();
    EXPECT_FALSE(tests::exists(name.path()));
  }
}

// The new job may need the memory of the old region.
TEST(RegionSweep, RemovesTheRegionOfKilledProcessesForAJobWithoutRoom) {
  RegionName name;
  leave_behind(name, Age::young);
  const RegionName other;
  ASSERT_EQ(run_in_child([&] {
              constexpr rlimit k_too_small{1, 1};
              CHILD_CHECK(setrlimit(RLIMIT_FSIZE, &k_too_small) == 0);
              CHILD_CHECK(tests::attach(other.options) == nullptr);
              return 0;
            }),
            0);
  EXPECT_FALSE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesARegionToBeKept) {
  RegionName name;
  name.options.keep = true;
  leave_behind(name, Age::old);
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesARegionThatItsMakerMayStillJoin) {
  RegionName name;
  leave_behind(name, Age::young,
               [](Region& made) { made.job_row(made.own_job()).leader = base::ProcessId{}; });
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesAYoungRegionOfAnotherPidNamespace) {
  RegionName name;
  leave_behind(name, Age::young,
               [](Region& made) { ++made.job_row(made.own_job()).leader.pid_namespace; });
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesARegionInUse) {
  const RegionName name;
  const Child user =
      tests::attached_child(name.options, [](Region& mine) { mine.header().created_ns = 1; });
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesARegionBeforeItsReport) {
  RegionName name;
  const base::ProcessId leader = base::current_process();  // is alive, and has not reported
  ASSERT_EQ(run_in_child([&] {
              name.options.job = leader;
              Region* const region = tests::attach(name.options);
              CHILD_CHECK(region != nullptr);
              region->header().created_ns = 1;
              raise(SIGKILL);
              return 0;
            }),
            -SIGKILL);
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

// The socket that a leader makes next to a region. Without a listener, it looks like the socket of
// a dead leader.
struct Socket {
  std::string path;
  int fd = -1;

  Socket(const RegionName& name, Age age) : path(Region::socket_path_of(name.path())) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const timespec times[2] = {{1, 0}, {1, 0}};
    EXPECT_TRUE(age == Age::young || utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    close(fd);
    unlink(path.c_str());
  }
};

// The socket must not remain until a job of the same name runs.
TEST(RegionSweep, RemovesTheSocketOfADeadLeader) {
  const RegionName name;
  const Socket socket(name, Age::old);
  begin_a_job();
  EXPECT_FALSE(tests::exists(socket.path));
}

// The socket of a region that stays although all processes have left it.
TEST(RegionSweep, RemovesTheSocketOfARegionToBeKept) {
  RegionName name;
  name.options.keep = true;
  leave_behind(name, Age::old);
  const Socket socket(name, Age::old);
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
  EXPECT_FALSE(tests::exists(socket.path));
}

TEST(RegionSweep, SparesAListeningSocket) {
  const RegionName name;
  const Socket socket(name, Age::old);
  ASSERT_EQ(listen(socket.fd, 1), 0);
  begin_a_job();
  EXPECT_TRUE(tests::exists(socket.path));
}

TEST(RegionSweep, SparesAYoungSocket) {
  const RegionName name;
  const Socket socket(name, Age::young);
  begin_a_job();
  EXPECT_TRUE(tests::exists(socket.path));
}

TEST(RegionSweep, SparesTheSocketOfARegionInUseWithoutConnecting) {
  const RegionName name;
  const Child user = tests::attached_child(name.options, [](Region&) {});
  const Socket socket(name, Age::old);
  ASSERT_EQ(listen(socket.fd, 1), 0);
  begin_a_job();
  EXPECT_TRUE(tests::exists(socket.path));
  EXPECT_EQ(accept4(socket.fd, nullptr, nullptr, SOCK_NONBLOCK), -1);
}

TEST(RegionSweep, SparesOtherFilesAndSocketsOfOtherUsers) {
  const RegionName name;
  const std::string path = Region::socket_path_of(name.path());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  close(fd);
  begin_a_job();
  EXPECT_TRUE(tests::exists(path));
  unlink(path.c_str());
  if (geteuid() != 0) return;
  const Socket socket(name, Age::old);
  ASSERT_EQ(lchown(path.c_str(), 12345, 12345), 0);
  begin_a_job();
  EXPECT_TRUE(tests::exists(path));
}

}  // namespace
}  // namespace cube::cache
