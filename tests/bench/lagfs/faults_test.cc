// Injected errors, hangs and short reads take effect as configured.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "mount.h"

namespace cube::lagfs::testing {
namespace {

using Faults = LagfsTest;

int open_errno(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

TEST_F(Faults, FailWithTheSetErrno) {
  write_file(mount_.source("file"), "data");
  mount_.start(fast({"--fail=read:ESTALE:1", "--fail=unlink:EROFS"}));
  const int fd = open(mount_.at("file").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  char byte = 0;
  errno = 0;
  EXPECT_EQ(read(fd, &byte, 1), -1);
  EXPECT_EQ(errno, ESTALE);
  close(fd);
  EXPECT_EQ(unlink(mount_.at("file").c_str()), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(read_file(mount_.source("file")), "data");
  EXPECT_GE(mount_.json_number("read", "errors"), 1U);
  EXPECT_EQ(mount_.json_number("read", "bytes"), 0U);
  EXPECT_EQ(mount_.json_number("unlink", "errors"), 1U);
}

TEST_F(Faults, RepeatForTheSameSeed) {
  write_file(mount_.source("file"), "data");
  const auto pattern = [&](const char* seed) {
    mount_.start(fast({"--fail=open:EIO:0.5", seed}));
    std::string result;
    for (int i = 0; i < 200; ++i) result += open_errno(mount_.at("file")) == EIO ? 'x' : '.';
    mount_.stop();
    return result;
  };
  const std::string first = pattern("--seed=7");
  EXPECT_EQ(pattern("--seed=7"), first);
  EXPECT_NE(pattern("--seed=8"), first);
  const auto failures = std::count(first.begin(), first.end(), 'x');
  EXPECT_GT(failures, 60);
  EXPECT_LT(failures, 140);
}

TEST_F(Faults, NeverHappenWithProbabilityZero) {
  write_file(mount_.source("file"), "data");
  mount_.start(fast({"--fail=open:EIO:0", "--hang=open:3600:0"}));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(open_errno(mount_.at("file")), 0);
}

TEST_F(Faults, HangForTheConfiguredTime) {
  write_file(mount_.source("file"), "data");
  mount_.start(fast({"--hang=open:0.3"}));
  EXPECT_GE(seconds_for([&] { EXPECT_EQ(open_errno(mount_.at("file")), 0); }), 0.3);
}

TEST_F(Faults, HangLeavesOtherClientsRunningAndKilledOnesExit) {
  write_file(mount_.source("file"), "data");
  mount_.start_in_foreground(fast({"--hang=open:3600"}));
  const pid_t client = fork();
  if (client == 0) {
    open_errno(mount_.at("file"));
    _exit(0);
  }
  while (mount_.counters()["open"] == 0) {  // visible while it hangs
  }
  struct stat st {};
  EXPECT_EQ(stat(mount_.at("file").c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 4);
  kill(client, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(client, &status, 0), client);
  EXPECT_TRUE(WIFSIGNALED(status));
  mount_.stop();
}

TEST_F(Faults, ShortReadsLoseNoBytes) {
  const std::string data = random_bytes(300'000, 3);
  write_file(mount_.source("file"), data);
  mount_.start(fast({"--direct", "--short-read=1"}));
  const int fd = open(mount_.at("file").c_str(), O_RDONLY);
  std::string buffer(100'000, '\0');
  const ssize_t got = pread(fd, buffer.data(), buffer.size(), 0);
  EXPECT_GT(got, 0);
  EXPECT_LT(got, 100'000);
  close(fd);
  EXPECT_EQ(read_file(mount_.at("file"), 100'000), data);
}

}  // namespace
}  // namespace cube::lagfs::testing
