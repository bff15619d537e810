// Threads whose combined result does not depend on their order, and signal handlers that use files.
#include <fcntl.h>
#include <sched.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "cache/base/sys.h"
#include "tests/differential/block_alarm.h"
#include "tests/differential/player.h"

namespace cube::differ {
namespace {

// The handlers of timers run only in this thread: in another thread they would occupy fds that the
// sequence can see.
void run_both(const std::function<void()>& first, const std::function<void()>& second) {
  const BlockAlarm block;
  std::thread one(first), two(second);
  one.join();
  two.join();
}

struct Sum {
  std::uint64_t hash = 0, bytes = 0, failed = 0;
  void add(long n, const unsigned char* data) {
    failed += n < 0 && errno != EISDIR;
    if (n <= 0) return;
    hash += hash_of(data, static_cast<std::size_t>(n));
    bytes += static_cast<std::uint64_t>(n);
  }
};
std::string text(const Sum& a, const Sum& b) {
  return fmt::format("{:016x}, {} bytes, {} failed", a.hash + b.hash, a.bytes + b.bytes,
                     a.failed + b.failed);
}

void read_places(int fd, Sum& sum) {
  unsigned char to[700];
  for (int i = 0; i < 40; ++i) sum.add(pread(fd, to, sizeof to, i * 611), to);
}
// Reads the rest of the file in pieces. Exactly one reader receives each piece.
void read_rest(int fd, Sum& sum) {
  unsigned char to[64];
  for (int i = 0; i < 3000; ++i) {
    const long n = read(fd, to, sizeof to);
    sum.add(n, to);
    if (n <= 0) break;
  }
}
// `turns`: how many times in total to try again if there is no free fd, because the other thread
// will free one. On a busy machine, this can take many tries.
void read_by_name(const char* path, Sum& sum, int turns) {
  unsigned char to[3000];
  for (int i = 0; i < 6; ++i) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    // After `limit`, the other thread can hold the last fd for a while; in mode real, it uses two
    // fds for a moment.
    for (; fd < 0 && errno == EMFILE && turns > 0; --turns) {
      sched_yield();
      fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0 && errno == EMFILE) continue;
    sum.add(fd < 0 ? -1 : read(fd, to, sizeof to), to);
    if (fd >= 0) close(fd);
  }
}
void dup_and_close(int fd, Sum& sum) {
  unsigned char to[300];
  for (int i = 0; i < 20; ++i) {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    sum.add(copy < 0 ? -1 : pread(copy, to, sizeof to, i * 10), to);
    if (copy >= 0) close(copy);
  }
}

// The data on which a handler works; set before the signal can arrive.
struct HandlerTask {
  Player* player = nullptr;
  int fd = -1;
  std::int64_t kind = 0;
  char path[400] = {};
  Sum expected;
  unsigned long runs = 0, wrong = 0;
};
HandlerTask g_task, g_storm;

void on_signal(int) {
  unsigned char to[200];
  Sum sum;
  const int before = errno;
  Result r;
  switch (g_task.kind % 6) {
    case 0: read_by_name(g_task.path, sum, 0); break;
    case 1: sum.add(read(g_task.fd, to, sizeof to), to); break;
    case 2: r = Player::call([] { return close(g_task.fd); }); break;
    case 3: r = Player::call([] { return dup2(g_task.fd, 33); }); break;
    case 4: r = Player::call([] { return open(g_task.path, O_RDONLY); }); break;
    default: r = Player::call([] { return lseek(g_task.fd, 10, SEEK_SET); }); break;
  }
  errno = before;
  g_task.player->say("handler {}: {} {}", g_task.kind, r.text(), text(sum, {}));
}

// The timer fires only one time per start, so that the program makes progress even if a handler
// takes long.
void start_timer(long microseconds) {
  ::itimerval timer{};
  timer.it_value.tv_usec = microseconds;
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void on_alarm(int) {
  const int before = errno;
  Sum sum;
  read_by_name(g_storm.path, sum, 0);
  ++g_storm.runs;
  g_storm.wrong +=
      sum.failed != 0 && base::sys::failed(base::sys::raw(SYS_faccessat, AT_FDCWD,
                                                          base::sys::arg(g_storm.path), R_OK)) == 0;
  // Makes the library release the fd of the last file, which it keeps for the next open. This fd
  // could disturb a call that the handler has interrupted (SEMANTICS, Limits).
  close(dup(STDIN_FILENO));
  start_timer(150);
  errno = before;
}

}  // namespace

DIFFER_PLAY(threads) {
  const int first = p.fd(a[0]), second = p.fd(a[1]);
  const std::string path = p.path(a[2], 0);
  constexpr int k_turns = 2000;
  Sum one, two;
  for (const int fd : {first, second}) p.rewind_packed_directory(fd);
  switch (a[3] % 5) {
    case 0: run_both([&] { read_places(first, one); }, [&] { read_places(second, two); }); break;
    case 1: run_both([&] { read_rest(first, one); }, [&] { read_rest(first, two); }); break;
    case 2:
      run_both([&] { read_by_name(path.c_str(), one, k_turns); },
               [&] { read_by_name(path.c_str(), two, k_turns); });
      break;
    case 3: run_both([&] { dup_and_close(first, one); }, [&] { read_places(first, two); }); break;
    default:
      run_both([&] { dup_and_close(first, one); }, [&] { dup_and_close(first, two); });
      break;
  }
  p.say("threads {} on {} and {}: {}", a[3] % 5, first, second, text(one, two));
}

DIFFER_PLAY(signal) {
  g_task = {.player = &p, .fd = p.fd(a[0]), .kind = a[2]};
  // Positions in a directory belong to the file system.
  if (g_task.kind % 6 == 5 && p.is_packed_directory(g_task.fd)) return;
  p.rewind_packed_directory(g_task.fd);
  p.path(a[1], 0).copy(g_task.path, sizeof g_task.path - 1);
  signal(SIGUSR1, on_signal);
  p.say("raise = {}", p.call([] { return raise(SIGUSR1); }).text());
}

// From here on, a timer's handler can open, read and close a file between any two instructions. It
// leaves nothing behind, so the results of the sequence do not depend on when the handler runs.
DIFFER_PLAY(storm) {
  const std::string path = p.path(a[0], 0);
  const bool starts = a[1] < 6;
  start_timer(0);
  if (g_storm.wrong != 0) p.say("storm: {} reads failed", g_storm.wrong);
  g_storm = HandlerTask();
  path.copy(g_storm.path, sizeof g_storm.path - 1);
  struct ::sigaction action {};
  action.sa_handler = on_alarm;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  if (starts) start_timer(150);
}

}  // namespace cube::differ
