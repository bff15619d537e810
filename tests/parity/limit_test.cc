// Behavior at the limits of fds, file sizes, names and links. Also the list of open fds.
#include <dirent.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <functional>
#include <memory>
#include <thread>

#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

namespace {

void allow(rlim_t fds) {
  const rlimit limit{fds, 4096};
  setrlimit(RLIMIT_NOFILE, &limit);
}
std::string content_of_proc(const char* directory, int fd) {
  char name[64], text[1000] = {};
  std::snprintf(name, sizeof name, "/proc/self/%s/%d", directory, fd);
  const int info = open(name, O_RDONLY);
  const ssize_t n = read(info, text, sizeof text - 1);
  close(info);
  const std::string all(text, n > 0 ? n : 0);
  return all.substr(0, all.find("mnt_id"));
}

}  // namespace

PARITY(Limit, TooManyOpenFiles) {
  t.in_child([&] {
    const char* const path = t.file("a", 300);
    char got[8];
    std::vector<int> fds;
    allow(20);
    for (int i = 0; i < 20; ++i) fds.push_back(CALL(open(path, O_RDONLY)));
    EXPECT_EQ(fds.back(), -1);
    CALL(open(path, O_RDONLY | O_DIRECTORY));
    CALL(open(path, O_WRONLY));
    CALL(open(t / "none", O_RDONLY));
    CALL(fopen(path, "r"));
    CALL(dup(fds[0]));
    CALL(dup2(fds[0], 19));
    CALL(dup2(fds[0], 20));
    EXPECT_EQ(errno, EBADF);
    CALL(dup3(fds[0], 25, 0));
    CALL(fcntl(fds[0], F_DUPFD, 0));
    EXPECT_EQ(errno, EMFILE);
    CALL(fcntl(fds[0], F_DUPFD, 25));
    EXPECT_EQ(errno, EINVAL);
    int pair[2];
    CALL(pipe(pair));
    CALL(opendir(t.root().c_str()));
    CALL(read(fds[0], got, 8));
    t.bytes("got", got, 8);
    CALL(close(fds[5]));
    CALL(open(path, O_RDONLY));
    CALL(open("/dev/null", O_RDONLY));
    CALL(close(fds[5]));
    CALL(open("/dev/null", O_RDONLY));
    CALL(lseek(fds[1], 30, SEEK_SET));
    // The file becomes a kernel file if there is no room for both fds.
    CALL(fsync(fds[1]));
    CALL(read(fds[1], got, 8));
    t.bytes("got", got, 8);
    // Fds that are above a lowered limit stay open.
    allow(10);
    CALL(read(fds[12], got, 8));
    CALL(lseek(fds[12], 0, SEEK_CUR));
    CALL(open(path, O_RDONLY));
    CALL(close(fds[2]));
    CALL(open(path, O_RDONLY));
    allow(3);
    CALL(open(path, O_RDONLY));
    CALL(stat(path, &*std::make_unique<struct stat>()));
    allow(0);
    CALL(read(fds[0], got, 8));
    CALL(open(path, O_RDONLY));
    allow(20);
    void* const at = CALL(mmap(nullptr, 300, PROT_READ, MAP_PRIVATE, fds[3], 0));
    if (at != MAP_FAILED) t.bytes("mapped", at, 300);
  });
}

PARITY(Limit, LoweredBelowTheFdThatWasClosedLast) {
  t.in_child([&] {
    const char* const path = t.file("a", 300);
    const auto check = [&](const char* way, const std::function<int(rlim_t)>& lower) {
      allow(64);
      const int fd = CALL(open(path, O_RDONLY));
      CALL(close(fd));
      t.line(way);
      CALL(lower(static_cast<rlim_t>(fd)));
      CALL(open(path, O_RDONLY));
      EXPECT_EQ(errno, EMFILE);
    };
    check("setrlimit", [](rlim_t n) {
      return setrlimit(RLIMIT_NOFILE, std::make_unique<rlimit>(rlimit{n, 4096}).get());
    });
    check("setrlimit64", [](rlim_t n) {
      return setrlimit64(RLIMIT_NOFILE, std::make_unique<rlimit64>(rlimit64{n, 4096}).get());
    });
    check("prlimit", [](rlim_t n) {
      return prlimit(0, RLIMIT_NOFILE, std::make_unique<rlimit>(rlimit{n, 4096}).get(), nullptr);
    });
    check("prlimit64", [](rlim_t n) {
      return prlimit64(getpid(), RLIMIT_NOFILE, std::make_unique<rlimit64>(rlimit64{n, 4096}).get(),
                       nullptr);
    });
    check("system call", [](rlim_t n) {
      return static_cast<int>(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE,
                                      std::make_unique<rlimit64>(rlimit64{n, 4096}).get(),
                                      nullptr));
    });
    check("older system call", [](rlim_t n) {
      return static_cast<int>(
          syscall(SYS_setrlimit, RLIMIT_NOFILE, std::make_unique<rlimit>(rlimit{n, 4096}).get()));
    });
  });
}

PARITY(Limit, FileSizeAndAddressSpace) {
  t.in_child([&] {
    const char* const path = t.file("a", 100000);
    const rlimit none{0, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &none);
    char got[8];
    const int fd = CALL(open(path, O_RDONLY));
    CALL(read(fd, got, 8));
    t.bytes("got", got, 8);
    CALL(fsync(fd));
    CALL(lseek(fd, 0, SEEK_CUR));
    void* const at = CALL(mmap(nullptr, 100000, PROT_READ, MAP_SHARED, fd, 0));
    t.bytes("mapped", at, 100000);
    const rlimit some{64 << 10, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &some);
    CALL(mmap(nullptr, 100000, PROT_READ, MAP_SHARED, fd, 0));
    CALL(open(path, O_RDONLY));
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &all);
  });
}

PARITY(Limit, FdOfAFileThatCannotBeCopiedStaysInUse) {
  t.in_child([&] {
    const char* const path = t.file("a", 100000);
    const int fd = CALL(open(path, O_RDONLY));
    char got[8];
    CALL(read(fd, got, 8));
    cube::base::sys::raw(SYS_unlinkat, AT_FDCWD, cube::base::sys::arg(path), 0);
    const rlimit nothing{0, RLIM_INFINITY},
        full{static_cast<rlim_t>(fd) + 1, static_cast<rlim_t>(fd) + 1};
    // Unseen by the library, which otherwise copies the file before there is a limit.
    cube::base::sys::raw(SYS_prlimit64, 0, RLIMIT_FSIZE, cube::base::sys::arg(&nothing), 0);
    setrlimit(RLIMIT_NOFILE, &full);
    fsync(fd);  // needs a kernel file, and there is neither the file nor room for a copy
    CALL(open("/dev/null", O_RDONLY));
    CALL(pread(fd, got, 8, 50000));
    t.bytes("got", got, 8);
  });
}

// In the kernel, both processes read the same file description. The library cannot share a served
// file's offset without a free fd, so its child may fail, but must not read at an offset of its
// own.
PARITY(Limit, ChildOfThreadsReadsNoBytesThatItsParentReadsAgain) {
  t.in_child([&] {
    const char* const path = t.file("a", 300);
    auto* const by_child = static_cast<long*>(
        mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::atomic<bool> may_end{false};
    std::thread thread([&] { may_end.wait(false); });
    const int fd = CALL(open(path, O_RDONLY));
    char got[8];
    CALL(read(fd, got, 8));
    const rlimit full{static_cast<rlim_t>(fd) + 1, static_cast<rlim_t>(fd) + 1};
    setrlimit(RLIMIT_NOFILE, &full);
    const pid_t child = fork();
    if (child == 0) {
      *by_child = read(fd, got, 8);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    const std::size_t at = 8 + (*by_child > 0 ? 8 : 0);
    CALL(read(fd, got, 8));
    t.line(std::string(got, 8) == cube::parity::content_of("a", 300).substr(at, 8)
               ? "the parent reads on"
               : "the parent reads what the child has read");
    may_end = true;
    may_end.notify_all();
    thread.join();
  });
}

PARITY(Limit, ListOfFdsAndTheirFiles) {
  t.file("a", 300);
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  const int fd = CALL(open(t / "a", O_RDONLY));
  const int cloexec = CALL(open(t / "a", O_RDONLY | O_CLOEXEC | O_APPEND));
  CALL(lseek(fd, 42, SEEK_SET));
  const int copy = CALL(dup(fd));
  t.line(content_of_proc("fdinfo", fd));
  t.line(content_of_proc("fdinfo", cloexec));
  t.line(content_of_proc("fdinfo", copy));
  const int fresh = CALL(open(t / "a", O_RDONLY));
  CALL(lseek(fresh, 7, SEEK_SET));
  DIR* const list = opendir("/proc/self/fd");
  std::string numbers;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(list)) {
    char target[4096] = {};
    // The name is relative to a directory fd, so the name alone does not show that it refers to an
    // fd.
    if (readlinkat(dirfd(list), entry->d_name, target, sizeof target - 1) > 0 &&
        atoi(entry->d_name) > 2)
      names.push_back(std::string(entry->d_name) + " " + target);
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) t.path("fd", name.c_str());
  closedir(list);
  CALL(lseek(fresh, 0, SEEK_CUR));
  struct stat st {};
  const int self = CALL(open("/proc/self/fd", O_RDONLY | O_DIRECTORY));
  const int last = CALL(open(t / "a", O_RDONLY));
  CALL(fstatat(self, std::to_string(last).c_str(), &st, 0));
  t.stat("fstatat", st, t / "a");
  const int other = CALL(open(t / "a", O_RDONLY));
  const int through = CALL(openat(self, std::to_string(other).c_str(), O_RDONLY));
  char got[8] = {};
  CALL(read(through, got, 8));
  t.bytes("got", got, 8);
  CALL(chdir("/proc/self/fd"));
  const int one_more = CALL(open(t / "a", O_RDONLY));
  CALL(read(CALL(open(std::to_string(one_more).c_str(), O_RDONLY)), got, 8));
  t.bytes("got", got, 8);
  CALL(chdir("/"));
  const std::string own =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(CALL(open(t / "a", O_RDONLY)));
  CALL(read(CALL(open(own.c_str(), O_RDONLY)), got, 8));
  t.bytes("got", got, 8);
}

PARITY(Limit, FdNameBelowProcWhenNoFdIsLeft) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  CALL(chdir("/proc/self/fd"));
  rlimit before{};
  CALL(getrlimit(RLIMIT_NOFILE, &before));
  const rlimit full{static_cast<rlim_t>(fd) + 1, before.rlim_max};
  CALL(setrlimit(RLIMIT_NOFILE, &full));
  struct stat st {};
  CALL(stat(std::to_string(fd).c_str(), &st));
  CALL(setrlimit(RLIMIT_NOFILE, &before));
  t.stat("stat", st, t / "a");
  CALL(chdir("/"));
}

PARITY(Limit, NamesAndPaths) {
  t.file("a");
  const std::string name(NAME_MAX, 'n'), longer(NAME_MAX + 1, 'n'),
      path = t.root() + std::string(PATH_MAX, '/') + "a";
  struct stat st {};
  char got[16];
  for (const std::string& one : {t.root() + "/" + name, t.root() + "/" + longer, path,
                                 t.root() + "/" + name + "/" + longer}) {
    t.line("of " + std::to_string(one.size() - t.root().size()));
    CALL(open(one.c_str(), O_RDONLY));
    CALL(stat(one.c_str(), &st));
    CALL(lstat(one.c_str(), &st));
    CALL(access(one.c_str(), R_OK));
    CALL(readlink(one.c_str(), got, sizeof got));
    CALL(realpath(one.c_str(), nullptr));
    CALL(truncate(one.c_str(), 0));
    CALL(rename(t / "a", one.c_str()));
    CALL(rename(one.c_str(), t / "a"));
    CALL(unlink(one.c_str()));
    CALL(chdir(one.c_str()));
    CALL(fopen(one.c_str(), "r"));
    CALL(opendir(one.c_str()));
    CALL(mkdir(one.c_str(), 0755));
    CALL(open(one.c_str(), O_WRONLY | O_CREAT, 0644));
  }
  CALL(close(CALL(open(t / name, O_RDONLY))));
}

PARITY(Limit, ChainsOfLinks) {
  t.file("a");
  t.link("l0", "a");
  for (int i = 1; i < 45; ++i) t.link("l" + std::to_string(i), "l" + std::to_string(i - 1));
  // If a directory changes during a walk, the kernel restarts the walk and counts the links twice.
  // The call can then fail with ELOOP.
  const auto settled = [](auto&& call) {
    int result = call();
    for (int again = 0; again < 20 && result < 0 && errno == ELOOP; ++again) result = call();
    return result;
  };
  for (const int i : {38, 39, 40, 41, 44}) {
    t.line(std::to_string(i));
    const char* const name = t / ("l" + std::to_string(i));
    struct stat st {};
    CALL(settled([&] { return open(name, O_RDONLY); }));
    CALL(settled([&] { return open(name, O_RDONLY); }));
    CALL(settled([&] { return stat(name, &st); }));
    CALL(settled([&] { return access(name, R_OK); }));
    CALL(open(name, O_RDONLY | O_NOFOLLOW));
  }
}
