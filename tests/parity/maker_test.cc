// Every call that makes an fd gets the lowest fd, and the library forgets the file that it served
// at this fd before.
#include <mqueue.h>
#include <netinet/in.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include <csignal>

#include "tests/support/parity_case.h"

// glibc 2.36 has them, but its header does not declare them as C for C++.
extern "C" {
#include <sys/pidfd.h>
}

namespace {

// Makes an fd twice: first when the fd of a closed served file is still parked, and then while a
// served file is open at a lower fd.
void made(cube::parity::Case& t, const char* what, const std::function<int()>& make) {
  t.line(what);
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  const int first = CALL(make());
  const int served = CALL(open(t / "a", O_RDONLY));
  const int second = CALL(make());
  char byte = 0;
  if (first >= 0) {
    // The bytes must not be those of the served file. Sockets are not read, because the read would
    // wait.
    CALL(fcntl(first, F_SETFL, CALL(fcntl(first, F_GETFL)) | O_NONBLOCK));
    CALL(read(first, &byte, 1));
    CALL(lseek(first, 0, SEEK_CUR));
    struct stat st {};
    CALL(fstat(first, &st));
    t.line("type " + std::to_string(st.st_mode & S_IFMT));
    CALL(close(first));
  }
  if (second >= 0) CALL(close(second));
  CALL(close(served));
  CALL(read(served, &byte, 1));
}

}  // namespace

PARITY(Maker, FdsOfKernelObjects) {
  t.file("a");
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  made(t, "socket", [] { return socket(AF_INET, SOCK_DGRAM, 0); });
  made(t, "eventfd", [] { return eventfd(3, EFD_CLOEXEC); });
  made(t, "epoll_create", [] { return epoll_create(1); });
  made(t, "epoll_create1", [] { return epoll_create1(EPOLL_CLOEXEC); });
  made(t, "memfd_create", [] { return memfd_create("x", MFD_CLOEXEC); });
  made(t, "timerfd_create", [] { return timerfd_create(CLOCK_MONOTONIC, 0); });
  made(t, "signalfd", [&] { return signalfd(-1, &signals, 0); });
  made(t, "inotify_init", [] { return inotify_init(); });
  made(t, "inotify_init1", [] { return inotify_init1(IN_CLOEXEC); });
  made(t, "pidfd_open", [] { return pidfd_open(getpid(), 0); });
  made(t, "posix_openpt", [] { return posix_openpt(O_RDWR | O_NOCTTY); });
  made(t, "shm_open", [] { return shm_open("/cubeshim-parity", O_RDWR | O_CREAT, 0600); });
  CALL(shm_unlink("/cubeshim-parity"));
  made(t, "mq_open",
       [] { return mq_open("/cubeshim-parity", O_RDWR | O_CREAT | O_NONBLOCK, 0600, nullptr); });
  CALL(mq_unlink("/cubeshim-parity"));
  made(t, "syscall eventfd2", [] { return static_cast<int>(syscall(SYS_eventfd2, 3, 0)); });
  made(t, "syscall timerfd_create",
       [] { return static_cast<int>(syscall(SYS_timerfd_create, CLOCK_MONOTONIC, 0)); });
  made(t, "syscall inotify_init1", [] { return static_cast<int>(syscall(SYS_inotify_init1, 0)); });
  made(t, "syscall socket",
       [] { return static_cast<int>(syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0)); });
  made(t, "syscall signalfd4",
       [&] { return static_cast<int>(syscall(SYS_signalfd4, -1, &signals, 8, 0)); });
  made(t, "syscall memfd_create",
       [] { return static_cast<int>(syscall(SYS_memfd_create, "x", 0)); });
}

PARITY(Maker, FailuresLeaveTheFdFree) {
  t.file("a");
  made(t, "socket", [] { return socket(9999, 0, 0); });
  made(t, "eventfd", [] { return eventfd(0, 0x40000000); });
  made(t, "epoll_create", [] { return epoll_create(0); });
  made(t, "memfd_create", [] { return memfd_create("x", 0x40000000); });
  made(t, "timerfd_create", [] { return timerfd_create(9999, 0); });
  made(t, "signalfd", [] { return signalfd(-1, nullptr, 0x40000000); });
  made(t, "inotify_init1", [] { return inotify_init1(0x40000000); });
  made(t, "pidfd_open", [] { return pidfd_open(-1, 0); });
  made(t, "shm_open", [] { return shm_open("/cubeshim-parity-none", O_RDONLY, 0); });
  made(t, "mq_open", [] { return mq_open("/cubeshim-parity-none", O_RDONLY); });
  made(t, "accept", [] { return accept(-1, nullptr, nullptr); });
  made(t, "mkstemp", [] {
    char pattern[] = "/nonexistent/XXXXXX";
    return mkstemp(pattern);
  });
}

PARITY(Maker, SocketsThatAreAccepted) {
  t.file("a");
  const int listener = CALL(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path + 1, 60, "cubeshim-parity-%d", getpid());
  const auto* const where = reinterpret_cast<sockaddr*>(&address);
  CALL(bind(listener, where, sizeof address));
  CALL(listen(listener, 4));
  const int client = CALL(socket(AF_UNIX, SOCK_STREAM, 0));
  CALL(connect(client, where, sizeof address));
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  const int one = CALL(accept(listener, nullptr, nullptr));
  const int second = CALL(socket(AF_UNIX, SOCK_STREAM, 0));
  CALL(connect(second, where, sizeof address));
  const int served = CALL(open(t / "a", O_RDONLY));
  CALL(close(served));
  const int two = CALL(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  CALL(fcntl(two, F_GETFD));
  CALL(write(client, "to one", 6));
  char got[8] = {};
  CALL(read(one, got, 8));
  t.bytes("got", got, 6);
  CALL(accept4(listener, nullptr, nullptr, 0x40000000));
  const int file = CALL(open(t / "a", O_RDONLY));
  CALL(accept(file, nullptr, nullptr));
  EXPECT_EQ(errno, ENOTSOCK);
  CALL(listen(file, 1));
  CALL(connect(file, where, sizeof address));
}

PARITY(Maker, TerminalsAndTemporaryFiles) {
  t.file("a");
  int master = -1, slave = -1;
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  // libc opens these fds itself, so they need not be the lowest.
  STDIO(-1, openpty(&master, &slave, nullptr, nullptr, nullptr));
  CALL(isatty(slave));
  CALL(close(master));
  CALL(close(slave));
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  FILE* const stream = STDIO(nullptr, tmpfile64());
  CALL(fileno(stream));
  CALL(fputs("text", stream));
  rewind(stream);
  CALL(fgetc(stream));
  CALL(fclose(stream));
  using Maker = int(char*);
  using FlagsMaker = int(char*, int);
  using SuffixMaker = int(char*, int, int);
  std::string pattern = t / "one-XXXXXX";
  const int one = t.note("mkstemp64", cube::parity::function<Maker>("mkstemp64")(pattern.data()));
  CALL(write(one, "1", 1));
  pattern = t / "two-XXXXXX";
  t.note("mkostemp64", cube::parity::function<FlagsMaker>("mkostemp64")(pattern.data(), O_CLOEXEC));
  pattern = t / "three-XXXXXX.x";
  t.note("mkstemps64", cube::parity::function<FlagsMaker>("mkstemps64")(pattern.data(), 2));
  pattern = t / "four-XXXXXX.xy";
  t.note("mkostemps64",
         cube::parity::function<SuffixMaker>("mkostemps64")(pattern.data(), 3, O_APPEND));
  pattern = t / "wrong";
  CALL(mkstemp(pattern.data()));
}

PARITY(Maker, HandlesOfFiles) {
  const char* const path = t.file("a", 300);
  struct {
    file_handle handle;
    unsigned char bytes[MAX_HANDLE_SZ];
  } by_path{}, by_fd{}, small{};
  by_path.handle.handle_bytes = by_fd.handle.handle_bytes = MAX_HANDLE_SZ;
  int mount = 0, fd_mount = 0;
  const int fd = CALL(open(path, O_RDONLY));
  if (CALL(name_to_handle_at(AT_FDCWD, path, &by_path.handle, &mount, 0)) == 0) {
    CALL(name_to_handle_at(fd, "", &by_fd.handle, &fd_mount, AT_EMPTY_PATH));
    t.line(mount == fd_mount ? "same mount" : "other mount");
    const bool same =
        by_path.handle.handle_bytes == by_fd.handle.handle_bytes &&
        std::memcmp(by_path.handle.f_handle, by_fd.handle.f_handle, by_fd.handle.handle_bytes) == 0;
    t.line(same ? "same handle" : "other handle");
    // The served file identifies its mount.
    const int other = CALL(open(path, O_RDONLY));
    const int again = CALL(open_by_handle_at(other, &by_path.handle, O_RDONLY));
    char got[8] = {};
    CALL(read(again, got, 8));
    t.bytes("got", got, 8);
  }
  CALL(name_to_handle_at(AT_FDCWD, path, &small.handle, &mount, 0));
  CALL(name_to_handle_at(fd, "", &by_fd.handle, &fd_mount, 0));
  CALL(name_to_handle_at(-1, "", &by_fd.handle, &fd_mount, AT_EMPTY_PATH));
  CALL(open_by_handle_at(-1, &by_fd.handle, O_RDONLY));
}

PARITY(Maker, FdsTakenFromAnotherProcess) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  CALL(lseek(fd, 30, SEEK_SET));
  const int self = CALL(pidfd_open(getpid(), 0));
  const int got = CALL(pidfd_getfd(self, fd, 0));
  char bytes[8] = {};
  CALL(read(got, bytes, 8));
  t.bytes("got", bytes, 8);
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(fcntl(got, F_GETFD));
  const int second = CALL(open(t / "a", O_RDONLY));
  const int raw = CALL(static_cast<int>(syscall(SYS_pidfd_getfd, self, second, 0)));
  CALL(read(raw, bytes, 8));
  t.bytes("got", bytes, 8);
  CALL(lseek(second, 0, SEEK_CUR));
  CALL(pidfd_getfd(self, 999, 0));
  EXPECT_EQ(errno, EBADF);
  CALL(pidfd_getfd(fd, 0, 0));
  CALL(pidfd_getfd(self, fd, 1));
  CALL(pidfd_send_signal(self, 0, nullptr, 0));
  CALL(pidfd_send_signal(CALL(open(t / "a", O_RDONLY)), 0, nullptr, 0));
}

PARITY(Maker, WatchesOnServedFiles) {
  const char* const path = t.file("a", 300);
  const int fd = CALL(open(path, O_RDONLY));
  const int inotify = CALL(inotify_init1(IN_NONBLOCK));
  CALL(inotify_add_watch(inotify, path, IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF));
  CALL(inotify_add_watch(fd, path, IN_MODIFY));
  CALL(inotify_add_watch(inotify, ("/proc/self/fd/" + std::to_string(fd)).c_str(),
                         IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF));
  const auto events = [&] {
    alignas(inotify_event) char buffer[4096];
    const ssize_t n = CALL(read(inotify, buffer, sizeof buffer));
    for (ssize_t at = 0; at < n;) {
      const auto* const event = reinterpret_cast<inotify_event*>(buffer + at);
      t.line("event " + std::to_string(event->wd) + " mask " + std::to_string(event->mask));
      at += static_cast<ssize_t>(sizeof *event) + event->len;
    }
  };
  events();
  const int writer = CALL(open(path, O_WRONLY));
  CALL(write(writer, "x", 1));
  CALL(close(writer));
  events();
  CALL(fchmod(fd, 0600));
  events();
  CALL(inotify_rm_watch(inotify, 99));
  CALL(inotify_rm_watch(CALL(open(path, O_RDONLY)), 1));
  CALL(unlink(path));
  events();
  const int notify = CALL(fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY));
  if (notify >= 0) {
    t.file("b", 300);
    const int other = CALL(open(t / "b", O_RDONLY));
    CALL(fanotify_mark(notify, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, t / "b"));
    CALL(fanotify_mark(notify, FAN_MARK_ADD, FAN_MODIFY, other, nullptr));
    CALL(fanotify_mark(other, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, t / "b"));
    CALL(fanotify_mark(notify, FAN_MARK_ADD, FAN_MODIFY, -1, nullptr));
  }
  CALL(fanotify_init(0x40000000, O_RDONLY));
}
