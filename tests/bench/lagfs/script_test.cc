// Faults that are injected one operation at a time while the mount runs.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "mount.h"

namespace cube::lagfs::testing {
namespace {

class Script : public LagfsTest {
 protected:
  void start() {
    write_file(mount_.source("file"), "data");
    Arguments arguments = fast({"--direct"});
    arguments.insert(arguments.end(), {"--attr-timeout=0", "--entry-timeout=0"});
    mount_.start(arguments);
  }
  int say(const std::string& line) {
    const int fd = open(mount_.at(".lagfs/script").c_str(), O_WRONLY);
    const int error = write(fd, line.data(), line.size()) < 0 ? errno : 0;
    close(fd);
    return error;
  }
  std::string held() { return read_file(mount_.at(".lagfs/held")); }
  int read_errno() {
    const int fd = open(mount_.at("file").c_str(), O_RDONLY);
    if (fd < 0) return errno;
    char bytes[10];
    const int error = read(fd, bytes, sizeof bytes) < 0 ? errno : 0;
    close(fd);
    return error;
  }
  struct stat stat_file() {
    struct stat st {};
    EXPECT_EQ(stat(mount_.at("file").c_str(), &st), 0) << errno;
    return st;
  }
};

TEST_F(Script, FailsOnlyTheNthOperation) {
  start();
  ASSERT_EQ(say("fail read EIO 3"), 0);
  EXPECT_EQ(read_errno(), 0);
  EXPECT_EQ(read_errno(), 0);
  EXPECT_EQ(read_errno(), EIO);
  EXPECT_EQ(read_errno(), 0);
  ASSERT_EQ(say("fail open EACCES 1 2\nfail read ENOENT 1 1"), 0);
  EXPECT_EQ(read_errno(), EACCES);
  EXPECT_EQ(read_errno(), EACCES);
  EXPECT_EQ(read_errno(), ENOENT);
  EXPECT_EQ(read_errno(), 0);
}

TEST_F(Script, HoldsAnOperationUntilGo) {
  start();
  ASSERT_EQ(say("hold read 2"), 0);
  EXPECT_EQ(read_errno(), 0);
  std::thread reader([&] { EXPECT_EQ(read_errno(), 0); });
  EXPECT_EQ(held(), "1\n");
  EXPECT_EQ(read_errno(), 0) << "others go on";
  ASSERT_EQ(say("go"), 0);
  reader.join();
  EXPECT_EQ(held(), "0\n") << "nothing is expected: does not wait";
}

TEST_F(Script, DropsAHeldRequestWithItsClient) {
  start();
  ASSERT_EQ(say("hold open"), 0);
  const pid_t client = fork();
  if (client == 0) _exit(read_errno());
  EXPECT_EQ(held(), "1\n");
  kill(client, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(client, &status, 0), client);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(Script, ReportsForgedSizeTimesAndInode) {
  start();
  const struct stat truth = stat_file();
  ASSERT_EQ(say("lie size 100\nlie times -1000\nlie inode"), 0);
  const struct stat first = stat_file();
  const struct stat second = stat_file();
  EXPECT_EQ(first.st_size, truth.st_size + 100);
  EXPECT_EQ(first.st_mtim.tv_sec, truth.st_mtim.tv_sec - 1000);
  EXPECT_EQ(first.st_ctim.tv_sec, truth.st_ctim.tv_sec - 1000);
  EXPECT_NE(first.st_ino, second.st_ino);
  ASSERT_EQ(say("clear"), 0);
  EXPECT_EQ(stat_file().st_size, truth.st_size);
  EXPECT_EQ(stat_file().st_ino, truth.st_ino);
}

TEST_F(Script, RejectsMalformedCommands) {
  start();
  for (const char* line :
       {"fail", "fail open", "fail open EWHAT", "fail nothing EIO", "hold", "hold open 0",
        "hold open x", "lie", "lie size", "lie size x", "lie name 3", "nonsense", "go on"}) {
    EXPECT_EQ(say(line), EINVAL) << line;
  }
  EXPECT_EQ(read_errno(), 0);
}

}  // namespace
}  // namespace cube::lagfs::testing
