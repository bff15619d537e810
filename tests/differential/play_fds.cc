// Fds: close and dup in all their forms, and other kinds of fds that are opened and closed between
// served files.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "tests/differential/actor.h"
#include "tests/differential/block_alarm.h"
#include "tests/differential/player.h"

namespace cube::differ {
namespace {

// Fd 0 may be closed and replaced; fds 1 and 2 belong to the harness.
int number(std::int64_t n) { return n % 40 == 0 ? 0 : 3 + static_cast<int>(n % 40); }

void keep(Player& p, std::int64_t slot, const Result& made) {
  if (!made.failed()) p.fd(slot) = static_cast<int>(made.value);
}

// Makes a pipe or a pair of sockets that never blocks.
void make_pair(Player& p, const Arguments& a, bool sockets) {
  int pair[2] = {-1, -1};
  const Result r = p.call([&] {
    return sockets ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)
                   : pipe2(pair, O_NONBLOCK | O_CLOEXEC);
  });
  p.say("{} = {}: {} {}", sockets ? "socketpair" : "pipe", r.text(), pair[0], pair[1]);
  if (r.failed()) return;
  p.fd(a[0]) = pair[0];
  p.fd(a[1]) = pair[1];
}

}  // namespace

DIFFER_PLAY(close) {
  const int fd = p.fd(a[0]);
  p.say("close({}) = {}", fd, p.call([&] { return close(fd); }).text());
}
DIFFER_PLAY(raw_close) {
  const int fd = p.fd(a[0]);
  p.say("syscall close({}) = {}", fd, p.call([&] { return syscall(SYS_close, fd); }).text());
}
DIFFER_PLAY(close_number) {
  const int fd = number(a[0]);
  p.say("close({}) = {}", fd, p.call([&] { return close(fd); }).text());
}
DIFFER_PLAY(close_range) {
  const auto first = static_cast<unsigned>(number(a[0]));
  const unsigned last = first + static_cast<unsigned>(a[1]);
  if (first == 0) return;
  const int flags = a[2] < 3 ? CLOSE_RANGE_CLOEXEC : a[2] == 7 ? 64 : 0;
  const Result r = p.call([&] { return close_range(first, last, flags); });
  p.say("close_range({}, {}, {}) = {}", first, last, flags, r.text());
}
DIFFER_PLAY(raw_close_range) {
  const auto first = static_cast<unsigned>(std::max(3, number(a[0])));
  const unsigned last = a[1] < 2 ? k_first_own_fd - 1 : first + static_cast<unsigned>(a[1]);
  const Result r = p.call([&] { return syscall(SYS_close_range, first, last, 0); });
  p.say("syscall close_range({}, {}) = {}", first, last, r.text());
}

DIFFER_PLAY(dup) {
  const int fd = p.fd(a[0]);
  const Result r = p.call([&] { return dup(fd); });
  p.say("dup({}) = {}", fd, r.text());
  keep(p, a[1], r);
}
DIFFER_PLAY(dup2) {
  const int fd = p.fd(a[0]), to = p.fd(a[1]);
  p.say("dup2({}, {}) = {}", fd, to, p.call([&] { return dup2(fd, to); }).text());
}
DIFFER_PLAY(dup2_number) {
  const int fd = p.fd(a[0]), to = number(a[1]);
  const Result r = p.call([&] { return dup2(fd, to); });
  p.say("dup2({}, {}) = {}", fd, to, r.text());
  keep(p, a[2], r);
}
DIFFER_PLAY(dup3) {
  const int fd = p.fd(a[0]), to = a[1] == 63 ? fd : number(a[1]),
            flags = a[2] < 4    ? O_CLOEXEC
                    : a[2] == 7 ? 1
                                : 0;
  const Result r = p.call([&] { return dup3(fd, to, flags); });
  p.say("dup3({}, {}, {}) = {}", fd, to, flags, r.text());
  keep(p, a[3], r);
}
DIFFER_PLAY(raw_dup) {
  const int fd = p.fd(a[0]), to = number(a[1]);
  const Result r = p.call([&] {
    if (a[2] < 3) return syscall(SYS_dup, fd);
    return a[2] < 6 ? syscall(SYS_dup3, fd, to, O_CLOEXEC) : syscall(SYS_fcntl, fd, F_DUPFD, to);
  });
  p.say("syscall dup {} ({}, {}) = {}", a[2], fd, to, r.text());
  keep(p, a[3], r);
}
DIFFER_PLAY(fcntl_dup) {
  const int fd = p.fd(a[0]), from = a[1] == 63 ? -1 : number(a[1]),
            command = a[2] % 2 == 0 ? F_DUPFD : F_DUPFD_CLOEXEC;
  const Result r = p.call([&] { return fcntl(fd, command, from); });
  p.say("fcntl({}, {}, {}) = {}", fd, command, from, r.text());
  keep(p, a[3], r);
}
DIFFER_PLAY(fcntl_fd) {
  const int fd = p.fd(a[0]);
  if (a[1] >= 4)
    p.say("fcntl({}, SETFD, {}) = {}", fd, a[1] & 1,
          p.call([&] { return fcntl(fd, F_SETFD, a[1] & 1); }).text());
  p.say("fcntl({}, GETFD) = {}", fd, p.call([&] { return fcntl(fd, F_GETFD); }).text());
}
DIFFER_PLAY(fcntl_flags) {
  const int fd = p.fd(a[0]);
  // O_NONBLOCK stays set on fds that would block the run.
  constexpr int flags[] = {O_APPEND | O_NONBLOCK, O_NONBLOCK, O_NONBLOCK | O_NOATIME,
                           O_NONBLOCK | O_ASYNC};
  if (a[1] >= 4)
    p.say("fcntl({}, SETFL) = {}", fd,
          p.call([&] { return fcntl(fd, F_SETFL, flags[a[1] % 4]); }).text());
  const Result r = p.call([&] { return fcntl(fd, F_GETFL); });
  p.say("fcntl({}, GETFL) = {} 0{:o}", fd, r.failed() ? r.text() : "", p.show_flags(r.value));
}

DIFFER_PLAY(pipe) { make_pair(p, a, a[2] % 2 != 0); }

DIFFER_PLAY(make_fd) {
  const Result r = p.call([&] {
    // Makes only fds whose inode no other process shares, because another process could lock a
    // shared inode.
    if (a[1] % 2 == 0) return memfd_create("differ", 0);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  });
  p.say("make fd {} = {}", a[1] % 2, r.text());
  keep(p, a[0], r);
}

// Lists the open fds like a program. No handler may close files during the listing (SEMANTICS,
// Limits: a listing of /proc/self/fd can show an fd that was just closed).
DIFFER_PLAY(list_fds) {
  const BlockAlarm block;
  std::set<int> numbers;
  if (a[0] % 2 == 0) {
    DIR* const list = opendir("/proc/self/fd");
    if (list == nullptr) return p.say("no list: {}", error_name(errno));
    while (const dirent* const entry = readdir(list)) {
      if (entry->d_name[0] != '.') numbers.insert(atoi(entry->d_name));
    }
    closedir(list);
  } else {
    for (int fd = 0; fd < 100; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0) numbers.insert(fd);
    }
  }
  std::string text;
  for (const int fd : numbers) text += fd < k_first_own_fd ? " " + std::to_string(fd) : "";
  p.say("open:{}", text);
}

DIFFER_PLAY(limit) {
  struct ::rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = a[0] % 2 == 0 ? 8 + static_cast<unsigned>(a[0]) : k_fd_limit;
  p.say("limit of fds: {}: {}", limit.rlim_cur,
        p.call([&] { return setrlimit(RLIMIT_NOFILE, &limit); }).text());
}

}  // namespace cube::differ
