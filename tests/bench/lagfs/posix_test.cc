// The mount shows the source as it is, and passes changes on to it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <latch>
#include <thread>

#include "mount.h"

namespace cube::lagfs::testing {
namespace {

using Posix = LagfsTest;

struct stat stat_of(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(lstat(path.c_str(), &st), 0) << path << ": " << strerror(errno);
  return st;
}

TEST_F(Posix, BytesAreIdenticalForManySizes) {
  const std::size_t sizes[] = {0,       1,       511,           4095,     4096,
                               4097,    65'535,  65'536,        110'000,  131'072,
                               131'073, 1 << 20, (1 << 20) + 3, 5'000'001};
  for (const std::size_t size : sizes)
    write_file(mount_.source(std::to_string(size)), random_bytes(size, size));
  for (const Arguments& mode :
       {Arguments{}, Arguments{"--direct"}, Arguments{"--keep-cache"}, Arguments{"--max-read=4096"},
        Arguments{"--direct", "--max-read=8192"}}) {
    mount_.start(fast(mode));
    for (const std::size_t size : sizes) {
      for (const std::size_t chunk : {std::size_t{1000}, std::size_t{1} << 20}) {
        ASSERT_TRUE(read_file(mount_.at(std::to_string(size)), chunk) == random_bytes(size, size))
            << size << " bytes, " << (mode.empty() ? "buffered" : mode[0]);
      }
    }
    mount_.stop();
  }
}

TEST_F(Posix, KeepCacheReadsOnce) {
  write_file(mount_.source("file"), random_bytes(50'000, 1));
  mount_.start(fast({"--keep-cache"}));
  read_file(mount_.at("file"));
  mount_.reset();
  read_file(mount_.at("file"));
  EXPECT_EQ(mount_.counters().count("read"), 0U);
  EXPECT_EQ(mount_.counters()["open"], 1U);
}

TEST_F(Posix, AttributesMatchTheSource) {
  write_file(mount_.source("file"), "data");
  const timespec times[2] = {{1'000'000'000, 123'456'789}, {1'100'000'000, 987'654'321}};
  ASSERT_EQ(utimensat(AT_FDCWD, mount_.source("file").c_str(), times, 0), 0);
  ASSERT_EQ(chmod(mount_.source("file").c_str(), 0640), 0);
  ASSERT_EQ(symlink("file", mount_.source("sym").c_str()), 0);
  mount_.start(fast());
  for (const char* name : {"file", "sym", ""}) {
    const struct stat a = stat_of(mount_.source(name));
    const struct stat b = stat_of(mount_.at(name));
    if (*name != '\0') {
      EXPECT_EQ(a.st_ino, b.st_ino) << "(the kernel gives the root of a mount its own)";
    }
    EXPECT_EQ(a.st_mode, b.st_mode);
    EXPECT_EQ(a.st_size, b.st_size);
    EXPECT_EQ(a.st_nlink, b.st_nlink);
    EXPECT_EQ(a.st_blocks, b.st_blocks);
    EXPECT_EQ(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
    EXPECT_EQ(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
    EXPECT_EQ(a.st_ctim.tv_nsec, b.st_ctim.tv_nsec);
  }
  char target[16] = {};
  EXPECT_EQ(readlink(mount_.at("sym").c_str(), target, sizeof(target)), 4);
  EXPECT_STREQ(target, "file");
}

TEST_F(Posix, ListingsAreComplete) {
  constexpr int k_files = 3000;
  std::vector<std::string> names;
  for (int i = 0; i < k_files; ++i) {
    names.push_back("a rather long name, so that one reply cannot hold all of them " +
                    std::to_string(10'000 + i));
    write_file(mount_.source(names.back()), "");
  }
  mount_.start(fast());
  EXPECT_EQ(list(mount_.target()), names);
  EXPECT_EQ(mount_.counters().count("readdirplus"), 0U);
  mount_.stop();

  mount_.start(fast({"--readdirplus"}));
  EXPECT_EQ(list(mount_.target()), names);
  EXPECT_EQ(mount_.counters().count("readdir"), 0U);
  EXPECT_EQ(stat_of(mount_.at(names[7])).st_ino, stat_of(mount_.source(names[7])).st_ino);
  EXPECT_EQ(mount_.counters().count("lookup"), 0U) << "the listing brought the attributes";
}

TEST_F(Posix, ReadsBackWrittenBytes) {
  const std::string data = random_bytes(2'777'777, 4);
  for (const Arguments& mode : {Arguments{}, Arguments{"--direct"}}) {
    mount_.start(fast(mode));
    write_file(mount_.at("file"), data);
    EXPECT_TRUE(read_file(mount_.at("file")) == data);
    EXPECT_TRUE(read_file(mount_.source("file")) == data);

    const int fd = open(mount_.at("file").c_str(), O_RDWR | O_APPEND);
    EXPECT_EQ(write(fd, "tail", 4), 4);
    EXPECT_EQ(fsync(fd), 0);
    EXPECT_EQ(read_file(mount_.source("file")).substr(data.size()), "tail");
    EXPECT_EQ(ftruncate(fd, 10), 0);
    close(fd);
    EXPECT_EQ(read_file(mount_.at("file")), data.substr(0, 10));
    EXPECT_EQ(truncate(mount_.at("file").c_str(), 5), 0);
    EXPECT_EQ(read_file(mount_.source("file")), data.substr(0, 5));
    mount_.stop();
  }
}

TEST_F(Posix, HardLinksShareOneInode) {
  write_file(mount_.source("a"), "old");
  mount_.start(fast());
  ASSERT_EQ(link(mount_.at("a").c_str(), mount_.at("b").c_str()), 0);
  EXPECT_EQ(stat_of(mount_.at("a")).st_ino, stat_of(mount_.at("b")).st_ino);
  EXPECT_EQ(stat_of(mount_.at("a")).st_nlink, 2U);
  EXPECT_EQ(read_file(mount_.at("a")), "old");
  write_file(mount_.at("b"), "changed");
  // The attributes never expire, so only a shared inode can show the new size.
  EXPECT_EQ(stat_of(mount_.at("a")).st_size, 7);
  EXPECT_EQ(read_file(mount_.at("a")), "changed");
  EXPECT_EQ(unlink(mount_.at("a").c_str()), 0);
  EXPECT_EQ(stat_of(mount_.at("b")).st_nlink, 1U);
  EXPECT_EQ(read_file(mount_.at("b")), "changed");
}

TEST_F(Posix, RenameMovesAndReplaces) {
  mount_.start(fast());
  write_file(mount_.at("a"), "a");
  write_file(mount_.at("b"), "b");
  ASSERT_EQ(mkdir(mount_.at("dir").c_str(), 0755), 0);
  EXPECT_EQ(renameat2(AT_FDCWD, mount_.at("a").c_str(), AT_FDCWD, mount_.at("b").c_str(),
                      RENAME_NOREPLACE),
            -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(renameat2(AT_FDCWD, mount_.at("a").c_str(), AT_FDCWD, mount_.at("b").c_str(),
                      RENAME_EXCHANGE),
            0);
  EXPECT_EQ(read_file(mount_.source("a")), "b");
  EXPECT_EQ(renameat2(AT_FDCWD, mount_.at("a").c_str(), AT_FDCWD, mount_.at("b").c_str(),
                      RENAME_EXCHANGE),
            0);
  EXPECT_EQ(rename(mount_.at("a").c_str(), mount_.at("b").c_str()), 0);
  EXPECT_EQ(read_file(mount_.at("b")), "a");
  EXPECT_EQ(rename(mount_.at("b").c_str(), mount_.at("dir/c").c_str()), 0);
  EXPECT_EQ(read_file(mount_.at("dir/c")), "a");
  EXPECT_EQ(list(mount_.source()), std::vector<std::string>{"dir"});
  EXPECT_EQ(rmdir(mount_.at("dir").c_str()), -1);
  EXPECT_EQ(errno, ENOTEMPTY);
  EXPECT_EQ(unlink(mount_.at("dir/c").c_str()), 0);
  EXPECT_EQ(rmdir(mount_.at("dir").c_str()), 0);
}

TEST_F(Posix, UnlinkedFileStaysReadableWhileOpen) {
  mount_.start(fast({"--attr-timeout=0"}));
  write_file(mount_.at("file"), "data");
  const int fd = open(mount_.at("file").c_str(), O_RDWR);
  ASSERT_EQ(unlink(mount_.at("file").c_str()), 0);
  EXPECT_EQ(access(mount_.at("file").c_str(), F_OK), -1);
  struct stat st {};
  EXPECT_EQ(fstat(fd, &st), 0);
  EXPECT_EQ(st.st_nlink, 0U);
  EXPECT_EQ(pwrite(fd, "more", 4, 4), 4);
  EXPECT_EQ(ftruncate(fd, 6), 0);
  EXPECT_EQ(fchmod(fd, 0600), 0);
  char buffer[16] = {};
  EXPECT_EQ(pread(fd, buffer, sizeof(buffer), 0), 6);
  EXPECT_STREQ(buffer, "datamo");
  write_file(mount_.at("file"), "another");  // may reuse the inode number
  EXPECT_EQ(pread(fd, buffer, sizeof(buffer), 0), 6);
  close(fd);
  EXPECT_EQ(read_file(mount_.at("file")), "another");
}

TEST_F(Posix, SupportsTheOtherCalls) {
  mount_.start(fast());
  write_file(mount_.at("file"), random_bytes(100'000, 5));
  const std::string path = mount_.at("file");

  EXPECT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(stat_of(mount_.source("file")).st_mode & 07777, 0600U);
  const timespec times[2] = {{0, UTIME_OMIT}, {1'234'567'890, 5}};
  EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(stat_of(mount_.source("file")).st_mtim.tv_sec, 1'234'567'890);

  EXPECT_EQ(symlink("file", mount_.at("sym").c_str()), 0);
  EXPECT_EQ(utimensat(AT_FDCWD, mount_.at("sym").c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  EXPECT_EQ(stat_of(mount_.source("sym")).st_mtim.tv_sec, 1'234'567'890);
  EXPECT_EQ(mkfifo(mount_.at("fifo").c_str(), 0644), 0);
  EXPECT_TRUE(S_ISFIFO(stat_of(mount_.source("fifo")).st_mode));

  const int fd = open(path.c_str(), O_RDWR);
  EXPECT_EQ(fallocate(fd, 0, 0, 200'000), 0);
  EXPECT_EQ(stat_of(mount_.source("file")).st_size, 200'000);
  EXPECT_EQ(lseek(fd, 0, SEEK_DATA), 0);
  EXPECT_EQ(isatty(fd), 0);
  EXPECT_EQ(errno, ENOTTY);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  EXPECT_EQ(fcntl(fd, F_SETLK, &lock), 0);
  void* map = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_EQ(memcmp(map, random_bytes(4096, 5).data(), 4096), 0);
  munmap(map, 4096);
  const int other = open(mount_.at("copy").c_str(), O_RDWR | O_CREAT | O_EXCL, 0644);
  EXPECT_EQ(copy_file_range(fd, nullptr, other, nullptr, 50'000, 0), 50'000);
  close(other);
  close(fd);
  EXPECT_TRUE(read_file(mount_.source("copy")) == random_bytes(100'000, 5).substr(0, 50'000));

  if (setxattr(mount_.source("file").c_str(), "user.a", "1", 1, 0) == 0) {
    char value[8] = {};
    EXPECT_EQ(setxattr(path.c_str(), "user.b", "two", 3, 0), 0);
    EXPECT_EQ(getxattr(path.c_str(), "user.b", value, sizeof(value)), 3);
    EXPECT_STREQ(value, "two");
    EXPECT_EQ(listxattr(path.c_str(), nullptr, 0), 14);
    EXPECT_EQ(removexattr(path.c_str(), "user.a"), 0);
    EXPECT_EQ(getxattr(path.c_str(), "user.a", value, sizeof(value)), -1);
    EXPECT_EQ(errno, ENODATA);
  }
}

TEST_F(Posix, NewFilesBelongToTheCreatingClient) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  constexpr uid_t k_user = 65'534;
  ASSERT_EQ(chmod(mount_.source().c_str(), 0777), 0);
  mount_.start(fast());
  // The other user must have search permission on the path to the mount.
  const int root = open(mount_.target().c_str(), O_RDONLY | O_DIRECTORY);
  const pid_t client = fork();
  if (client == 0) {
    umask(027);
    if (setgid(k_user) != 0 || setuid(k_user) != 0) _exit(1);
    if (openat(root, "file", O_WRONLY | O_CREAT, 0666) < 0) _exit(2);
    if (mkdirat(root, "dir", 0777) != 0) _exit(3);
    _exit(0);
  }
  int status = 0;
  waitpid(client, &status, 0);
  ASSERT_EQ(status, 0);
  close(root);
  for (const char* name : {"file", "dir"}) {
    EXPECT_EQ(stat_of(mount_.source(name)).st_uid, k_user);
    EXPECT_EQ(stat_of(mount_.source(name)).st_gid, k_user);
  }
  EXPECT_EQ(stat_of(mount_.source("file")).st_mode & 07777, 0640U);
}

TEST_F(Posix, ConcurrentLookupsAndForgetsBalance) {
  // In each round all threads make, find and remove the same names; a wrong count would free a node
  // in use.
  constexpr int k_threads = 8;
  mount_.start(fast({"--entry-timeout=0", "--attr-timeout=0"}));
  std::vector<std::thread> threads;
  for (int t = 0; t < k_threads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 300; ++round) {
        const std::string name = mount_.at(std::to_string((round + t) % 5));
        const int fd = open(name.c_str(), O_RDWR | O_CREAT, 0644);
        struct stat st {};
        if (fd >= 0) {
          EXPECT_EQ(fstat(fd, &st), 0) << strerror(errno);
        }
        link(name.c_str(), (name + "x").c_str());
        unlink(name.c_str());
        unlink((name + "x").c_str());
        if (fd >= 0) close(fd);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(list(mount_.source()).empty());
  write_file(mount_.at("after"), "alive");
  EXPECT_EQ(read_file(mount_.source("after")), "alive");
}

TEST_F(Posix, ForgetClosesDescriptors) {
  constexpr std::size_t k_files = 100;
  mount_.start_in_foreground(fast({"--entry-timeout=0"}));
  const std::string descriptors = "/proc/" + std::to_string(mount_.child()) + "/fd";
  access(mount_.at("absent").c_str(), F_OK);  // the server has begun
  const std::size_t before = list(descriptors).size();
  for (std::size_t i = 0; i < k_files; ++i) {
    const std::string name = mount_.at(std::to_string(i));
    write_file(name, "data");
    for (int again = 0; again < 3; ++again) stat_of(name);  // each is one more lookup
  }
  EXPECT_GE(list(descriptors).size(), before + k_files) << "one each, while the kernel knows them";
  for (std::size_t i = 0; i < k_files; ++i) unlink(mount_.at(std::to_string(i)).c_str());
  std::size_t after = 0;
  for (int tries = 0; tries < 10'000; ++tries) {
    if ((after = list(descriptors).size()) == before) break;
  }
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace cube::lagfs::testing
