// The host's commands on a file that stays open, by its fd.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <functional>
#include <thread>

#include "tests/hostile/crash/host.h"

namespace cube::crash {
namespace {

// open PATH: opens the file and keeps it open; the answer is the fd
std::string do_open(const Words& words) {
  const int fd = open(words[1].c_str(), O_RDONLY | O_CLOEXEC);
  return fd < 0 ? failed("open") : "fd " + std::to_string(fd);
}
std::string do_close(const Words& words) {
  return close(std::stoi(words[1])) == 0 ? "closed" : failed("close");
}
// fd FD [HOW]: reads the file from its beginning to its end
std::string do_fd(const Words& words) {
  const int fd = std::stoi(words[1]);
  struct stat st {};
  std::string bytes;
  if (lseek(fd, 0, SEEK_SET) != 0) return failed("lseek");
  if (fstat(fd, &st) != 0) return failed("fstat");
  if (!read_all(fd, words.size() > 2 ? words[2] : "read", bytes)) return failed("read");
  return seen(st.st_size, bytes);
}
std::string one_read(const Words& words, std::size_t count_at,
                     const std::function<ssize_t(int, char*, std::size_t)>& call) {
  std::string bytes(std::stoul(words[count_at]), '\0');
  const ssize_t n = call(std::stoi(words[1]), bytes.data(), bytes.size());
  if (n < 0) return failed("read");
  bytes.resize(static_cast<std::size_t>(n));
  return seen(n, bytes);
}
// offset FD; dup FD; dup2 FD TO
std::string do_offset(const Words& words) {
  return "at " + std::to_string(lseek(std::stoi(words[1]), 0, SEEK_CUR));
}
std::string do_dup(const Words& words) {
  const int fd =
      words.size() > 2 ? dup2(std::stoi(words[1]), std::stoi(words[2])) : dup(std::stoi(words[1]));
  return fd < 0 ? failed("dup") : "fd " + std::to_string(fd);
}
// limit N: sets the limit of fds
std::string do_limit(const Words& words) {
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::stoul(words[1]);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? "limited" : failed("setrlimit");
}
// setfd FD FLAGS [ioctl]: sets the flags of the fd; the answer has the flags before and after
std::string do_set_fd(const Words& words) {
  const int fd = std::stoi(words[1]), flags = std::stoi(words[2]);
  const int before = fcntl(fd, F_GETFD);
  const int error =
      words.size() > 3 ? ioctl(fd, flags != 0 ? FIOCLEX : FIONCLEX) : fcntl(fd, F_SETFD, flags);
  if (error != 0) return failed("F_SETFD");
  return "flags " + std::to_string(before) + " " + std::to_string(fcntl(fd, F_GETFD));
}
// kernel FD: makes a call that only the kernel can answer
std::string do_kernel(const Words& words) {
  return fsync(std::stoi(words[1])) == 0 || errno == EINVAL ? "done" : failed("fsync");
}
// mapfd FD: maps the whole file
std::string do_map_fd(const Words& words) {
  struct stat st {};
  if (fstat(std::stoi(words[1]), &st) != 0) return failed("fstat");
  const auto size = static_cast<std::size_t>(st.st_size);
  void* const at = mmap(nullptr, size, PROT_READ, MAP_SHARED, std::stoi(words[1]), 0);
  if (at == MAP_FAILED) return failed("mmap");
  const std::string answer = seen(st.st_size, std::string(static_cast<const char*>(at), size));
  munmap(at, size);
  return answer;
}
// threads PATH N: N threads read the same open file by pread, each from another place
std::string do_threads(const Words& words) {
  const int fd = open(words[1].c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open");
  struct stat st {};
  if (fstat(fd, &st) != 0) return failed("fstat");
  const auto size = static_cast<std::size_t>(st.st_size);
  constexpr std::size_t k_step = 40'000;
  std::vector<std::string> seen_by(std::stoul(words[2]));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < seen_by.size(); ++i) {
    threads.emplace_back([&, i] {
      std::string bytes(size, '\0');
      const std::size_t steps = (size + k_step - 1) / k_step;
      for (std::size_t k = 0; k < steps; ++k) {
        const std::size_t at = (i % 2 == 0 ? k : steps - 1 - k) * k_step;
        const std::size_t n = std::min(k_step, size - at);
        if (pread(fd, bytes.data() + at, n, static_cast<off_t>(at)) != static_cast<ssize_t>(n))
          return;
      }
      seen_by[i] = seen(st.st_size, bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  close(fd);
  for (const std::string& one : seen_by) {
    if (one != seen_by[0]) return "threads differ";
  }
  return seen_by[0];
}
// start FD OFFSET BYTES: a thread makes one pread; the command `finish` returns its result
std::thread g_thread;
std::string g_answer;
std::string do_start(const Words& words) {
  g_thread = std::thread([words] { g_answer = do_at(words); });
  return "started";
}
std::string do_finish(const Words&) {
  g_thread.join();
  return g_answer;
}
// handled FD MILLISECONDS: reads the file. During the read, a signal arrives, and its handler reads
// the same file by pread.
int g_handled = -1;
ssize_t g_handled_bytes = 0;
char g_handled_buffer[100'000];
std::string do_handled(const Words& words) {
  g_handled = std::stoi(words[1]);
  struct sigaction action {};
  action.sa_handler = [](int) {
    g_handled_bytes = pread(g_handled, g_handled_buffer, sizeof g_handled_buffer, 0);
  };
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const long ms = std::stol(words[2]);
  const itimerval when{{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  g_handled_bytes = 0;
  setitimer(ITIMER_REAL, &when, nullptr);
  std::string bytes;
  const bool whole = read_all(g_handled, "read", bytes);
  // Waits for the handler, even if the file was read fast.
  while (g_handled_bytes == 0) pause();
  if (!whole) return failed("read");
  return seen(static_cast<long>(bytes.size()), bytes) + " handler " +
         seen(g_handled_bytes,
              std::string(g_handled_buffer,
                          static_cast<std::size_t>(std::max<ssize_t>(g_handled_bytes, 0))));
}
// jumped FD BYTES: makes one read, which the handler of SIGUSR1 leaves by a jump
sigjmp_buf g_before_read;
std::string do_jumped(const Words& words) {
  struct sigaction action {};
  action.sa_handler = [](int) { siglongjmp(g_before_read, 1); };
  sigaction(SIGUSR1, &action, nullptr);
  // The buffer is static, because the jump would not destroy a local buffer.
  static std::string buffer;
  buffer.resize(std::stoul(words[2]));
  if (sigsetjmp(g_before_read, 1) != 0) return "left";
  const ssize_t n = read(std::stoi(words[1]), buffer.data(), buffer.size());
  return "not left: " + std::to_string(n);
}

}  // namespace

std::string do_next(const Words& words) { return one_read(words, 2, ::read); }
std::string do_at(const Words& words) {
  return one_read(words, 3, [&](int fd, char* to, std::size_t n) {
    return pread(fd, to, n, std::stol(words[2]));
  });
}

Commands fd_commands() {
  return {{"open", do_open},       {"fd", do_fd},         {"close", do_close},
          {"kernel", do_kernel},   {"next", do_next},     {"at", do_at},
          {"offset", do_offset},   {"dup", do_dup},       {"limit", do_limit},
          {"setfd", do_set_fd},    {"mapfd", do_map_fd},  {"threads", do_threads},
          {"handled", do_handled}, {"jumped", do_jumped}, {"start", do_start},
          {"finish", do_finish}};
}

}  // namespace cube::crash
