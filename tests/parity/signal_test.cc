// Signal handlers on the same served files as the code they interrupt: every reader gets bytes or a
// plain error, and each byte once.
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <ctime>
#include <map>
#include <thread>

#include "tests/support/parity_case.h"

namespace {

const char* g_path = nullptr;
std::atomic<int> g_handled{0}, g_wrong{0};
char g_first = 0;

// According to POSIX, all these calls are async-signal-safe.
void open_and_read(int) {
  const int saved = errno;
  char got[4] = {};
  struct stat st {};
  const int fd = open(g_path, O_RDONLY);
  const bool right = fd >= 0 && read(fd, got, 4) == 4 && got[0] == g_first &&
                     lseek(fd, 0, SEEK_CUR) == 4 && fstat(fd, &st) == 0 && st.st_size == 50000;
  const int copy = dup(fd);
  const bool shares = copy >= 0 && lseek(copy, 0, SEEK_CUR) == 4;
  if (!right || !shares || close(copy) != 0 || close(fd) != 0) g_wrong.fetch_add(1);
  g_handled.fetch_add(1);
  errno = saved;
}

}  // namespace

PARITY(Signal, HandlerReadsDuringReads) {
  g_path = t.file("a", 50000);
  g_first = cube::parity::content_of("a", 50000)[0];
  g_handled = g_wrong = 0;
  struct sigaction action {
  }, before{};
  action.sa_handler = open_and_read;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, &before);
  const std::string wanted = cube::parity::content_of("a", 50000);
  const pthread_t reader = pthread_self();
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    // Sends a signal only after the last one was handled, because otherwise the reader would get no
    // time to run.
    for (int sent = 0; !stop; sched_yield()) {
      if (g_handled != sent) continue;
      pthread_kill(reader, SIGUSR1);
      ++sent;
    }
  });
  int wrong = 0;
  // Runs as many rounds as needed for the handler to run often, in the middle of all calls that a
  // loader makes.
  for (int round = 0; round < 100 || g_handled < 100; ++round) {
    const int fd = open(g_path, O_RDONLY);
    std::string got(50000, '\0');
    std::size_t n = 0;
    for (ssize_t more; n < got.size() && (more = read(fd, got.data() + n, 7000)) > 0;) n += more;
    void* const at = mmap(nullptr, 50000, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd < 0 || got != wanted || at == MAP_FAILED || std::memcmp(at, wanted.data(), 50000) != 0)
      ++wrong;
    munmap(at, 50000);
    const int other = fcntl(fd, F_DUPFD_CLOEXEC, 30);
    if (other < 30 || close(other) != 0) ++wrong;
    if (round % 25 == 7 && fsync(fd) != 0) ++wrong;
    if (close(fd) != 0) ++wrong;
    FILE* const stream = fopen(g_path, "r");
    if (stream == nullptr || fread(got.data(), 1, 50000, stream) != 50000 || got != wanted ||
        fclose(stream) != 0)
      ++wrong;
  }
  stop = true;
  sender.join();
  sigaction(SIGUSR1, &before, nullptr);
  t.line("wrong " + std::to_string(wrong) + ", in handlers " + std::to_string(g_wrong));
  EXPECT_EQ(wrong + g_wrong, 0);
}

namespace {

// Records which numbers of a file the handler and the reader have read.
constexpr std::uint32_t k_numbers = 20000;
int g_numbers = -1;
std::uint8_t g_by_reader[k_numbers], g_by_handler[k_numbers];

void take_number(std::uint8_t (&seen)[k_numbers], bool& more) {
  std::uint32_t number = k_numbers;
  more = read(g_numbers, &number, sizeof number) == sizeof number;
  if (more) ++seen[number];
}

}  // namespace

PARITY(Signal, HandlerAndInterruptedReadGetNoByteTwice) {
  std::string content(k_numbers * sizeof(std::uint32_t), '\0');
  for (std::uint32_t i = 0; i < k_numbers; ++i)
    std::memcpy(content.data() + i * sizeof i, &i, sizeof i);
  g_numbers = CALL(open(t.text("numbers", content), O_RDONLY));
  g_handled = 0;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {
    const int saved = errno;
    bool more = false;
    take_number(g_by_handler, more);
    g_handled.fetch_add(1);
    errno = saved;
  };
  sigaction(SIGUSR1, &action, &before);
  timer_t timer{};
  struct sigevent event {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  const itimerspec often{{0, 40'000}, {0, 40'000}};
  timer_settime(timer, 0, &often, nullptr);
  // A handler can run between any two instructions of a read. Many signals are needed to interrupt
  // between the two instructions that must not be separated.
  int wrong = 0;
  while (g_handled < 1500) {
    // The signal is blocked while the offset is set back. Otherwise, on a slow mount, handlers
    // would run one after the other and read numbers before that.
    sigset_t signals, others;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, &others);
    std::memset(g_by_reader, 0, sizeof g_by_reader);
    std::memset(g_by_handler, 0, sizeof g_by_handler);
    lseek(g_numbers, 0, SEEK_SET);
    pthread_sigmask(SIG_SETMASK, &others, nullptr);
    for (bool more = true; more;) take_number(g_by_reader, more);
    for (std::uint32_t i = 0; i < k_numbers; ++i) wrong += g_by_reader[i] + g_by_handler[i] != 1;
  }
  timer_delete(timer);
  sigaction(SIGUSR1, &before, nullptr);
  CALL(close(g_numbers));
  t.line("wrong " + std::to_string(wrong));
  EXPECT_EQ(wrong, 0);
}

PARITY(Signal, HandlerThatLeavesByALongJump) {
  // A lock or mark that the library held during the jump would never be released.
  t.in_child([&] {
    static sigjmp_buf back;
    struct sigaction action {};
    action.sa_handler = [](int) { siglongjmp(back, 1); };
    sigaction(SIGALRM, &action, nullptr);
    const char* const path = t.file("a", 50000);
    static volatile sig_atomic_t jumps;
    jumps = 0;
    const itimerval every{{0, 300}, {0, 300}}, none{};
    if (sigsetjmp(back, 1) != 0) jumps = jumps + 1;
    setitimer(ITIMER_REAL, jumps < 30 ? &every : &none, nullptr);
    while (jumps < 30) {
      char got[64];
      const int fd = open(path, O_RDONLY);
      read(fd, got, sizeof got);
      lseek(fd, 10, SEEK_SET);
      close(fd);
    }
    close_range(3, 799, 0);
    close_range(900, 900, 0);
    // There is one jump more if the signal came before the timer was stopped.
    t.line(jumps >= 30 ? "jumped" : "not done");
    const int fd = open(path, O_RDONLY);
    char got[8] = {};
    t.line("read " + std::to_string(read(fd, got, 8)));
    t.bytes("got", got, 8);
  });
}

namespace {

// The body of a process whose one-byte reads are interrupted by its parent. Returns 1 unless reader
// and handler got one byte each, in order.
int read_beside_handler(const char* path) {
  static int fd = -1;
  static volatile char by_handler = 0;
  static volatile sig_atomic_t handled = 0;
  struct sigaction action {};
  action.sa_handler = [](int) {
    const int saved = errno;
    char byte = 0;
    handled = 1;
    if (read(fd, &byte, 1) == 1) by_handler = byte;
    errno = saved;
  };
  sigaction(SIGUSR1, &action, nullptr);
  fd = open(path, O_RDONLY);
  for (;;) {
    char byte = 0, next = 0;
    by_handler = 0;
    handled = 0;
    if (lseek(fd, 0, SEEK_SET) != 0) return 1;
    raise(SIGSTOP);
    if (read(fd, &byte, 1) != 1) return 1;
    raise(SIGSTOP);
    const bool in_turn =
        handled == 0 ? byte == '1'
                     : (byte == '1' && by_handler == '2') || (byte == '2' && by_handler == '1');
    if (!in_turn || read(fd, &next, 1) != 1 || next != (handled == 0 ? '2' : '3')) return 1;
  }
}

int wait_for_stop(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
}

#ifdef __x86_64__
constexpr unsigned long k_trap = 0xcc, k_trap_mask = 0xff;
unsigned long long& place_in(user_regs_struct& registers) { return registers.rip; }
#else
constexpr unsigned long k_trap = 0xd4200000, k_trap_mask = 0xffffffff;
unsigned long long& place_in(user_regs_struct& registers) { return registers.pc; }
#endif

// Returns the address of the next instruction of the stopped child. If `moved` is given, the child
// continues at that address.
unsigned long place_of(pid_t child, const unsigned long* moved = nullptr) {
  user_regs_struct registers{};
  iovec all{&registers, sizeof registers};
  ptrace(PTRACE_GETREGSET, child, NT_PRSTATUS, &all);
  if (moved != nullptr) {
    place_in(registers) = *moved;
    ptrace(PTRACE_SETREGSET, child, NT_PRSTATUS, &all);
  }
  return place_in(registers);
}

// Returns SIGTRAP if the child is about to execute this instruction for the n-th time, otherwise
// the signal that stopped it.
int run_to(pid_t child, unsigned long place, int n) {
  const long code = ptrace(PTRACE_PEEKTEXT, child, place, nullptr);
  const auto trap = static_cast<long>((static_cast<unsigned long>(code) & ~k_trap_mask) | k_trap);
  for (int stopped_by = SIGTRAP;;) {
    ptrace(PTRACE_POKETEXT, child, place, trap);
    ptrace(PTRACE_CONT, child, nullptr, nullptr);
    stopped_by = wait_for_stop(child);
    if (stopped_by == 0) return 0;
    ptrace(PTRACE_POKETEXT, child, place, code);
    if (stopped_by != SIGTRAP) return stopped_by;
    place_of(child, &place);
    if (--n == 0) return SIGTRAP;
    ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
    if ((stopped_by = wait_for_stop(child)) != SIGTRAP) return stopped_by;
  }
}

// Continues with the signal. Continues a second time if the signal was blocked, because raise
// blocks signals before glibc 2.35.
int go_on(pid_t child, long signal) {
  ptrace(PTRACE_CONT, child, nullptr, signal);
  int stopped_by = wait_for_stop(child);
  while (stopped_by == SIGUSR1) {
    ptrace(PTRACE_CONT, child, nullptr, long{SIGUSR1});
    stopped_by = wait_for_stop(child);
  }
  return stopped_by;
}

}  // namespace

PARITY(Signal, HandlerBetweenAnyTwoInstructionsOfAReadGetsTheOtherByte) {
  const char* const path = t.text("three", "123");
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    _exit(read_beside_handler(path));
  }
  int stopped_by = wait_for_stop(child);
  // The first read may differ from all later reads, so the second read is single-stepped up to the
  // next raise.
  for (int i = 0; i < 2 && stopped_by == SIGSTOP; ++i) stopped_by = go_on(child, 0);
  std::vector<unsigned long> way;
  for (bool is_on_way = stopped_by == SIGSTOP; is_on_way; is_on_way = stopped_by == SIGTRAP) {
    way.push_back(place_of(child));
    ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
    stopped_by = wait_for_stop(child);
  }
  if (stopped_by == SIGSTOP) stopped_by = go_on(child, 0);
  // The signal is sent before each instruction of the recorded path in turn.
  std::map<unsigned long, int> times;
  std::size_t reached = 0;
  for (std::size_t i = 0; i < way.size() && stopped_by == SIGSTOP; ++i) {
    stopped_by = run_to(child, way[i], ++times[way[i]]);
    if (stopped_by == SIGTRAP) {
      ++reached;
      stopped_by = go_on(child, SIGUSR1);
    }
    if (stopped_by == SIGSTOP) stopped_by = go_on(child, 0);
  }
  // 0: the child has ended.
  t.note("the child stopped by", stopped_by);
  EXPECT_EQ(stopped_by, SIGSTOP);
  // The path may differ from run to run, because it depends on the time.
  EXPECT_GT(reached, way.size() / 2);
  if (stopped_by == 0) return;
  ::kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}
