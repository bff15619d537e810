// The program that the fault tests harm: reads one command a line from its standard input, does it with plain libc calls
// and answers with one line. It runs with the library preloaded, and without it as the yardstick.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cache/base/sys.h"

namespace {

using Words = std::vector<std::string>;

// As zlib's, so that the driver can compare.
std::uint32_t crc32(const std::string& bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int k = 0; k < 8; ++k) t[i] = (t[i] >> 1) ^ (0xedb88320U & (0U - (t[i] & 1U)));
    }
    return t;
  }();
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

// A child does not outlive us, however we end.
pid_t fork_child() {
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
  }
  return child;
}

// The word that a child writes to the pipe, once, and the status with which it ends.
struct ChildAnswer {
  std::string text;
  int status = 0;
};
ChildAnswer answer_of(pid_t child, const int (&pipe_ends)[2]) {
  close(pipe_ends[1]);
  char text[200] = "";
  const ssize_t n = read(pipe_ends[0], text, sizeof text);
  close(pipe_ends[0]);
  ChildAnswer answer{std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0)};
  waitpid(child, &answer.status, 0);
  return answer;
}
bool tell(const int (&pipe_ends)[2], const std::string& text) {
  return write(pipe_ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::string failed(const char* step) { return std::string("error ") + strerrorname_np(errno) + " " + step; }
std::string seen(long size, const std::string& bytes) {
  return "ok " + std::to_string(size) + " " + std::to_string(bytes.size()) + " " + std::to_string(crc32(bytes));
}

// To the end, by the kind of read that is asked for. False: errno says why.
bool read_all(int fd, const std::string& how, std::string& bytes) {
  std::string buffer(how == "small" ? 1000 : 256 << 10, '\0');
  while (true) {
    ssize_t n = 0;
    if (how == "pread") {
      n = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(bytes.size()));
    } else if (how == "readv") {
      const iovec parts[2] = {{buffer.data(), 100}, {buffer.data() + 100, buffer.size() - 100}};
      n = readv(fd, parts, 2);
    } else {
      n = read(fd, buffer.data(), buffer.size());
    }
    if (n < 0) return false;
    if (n == 0) return true;
    bytes.append(buffer, 0, static_cast<std::size_t>(n));
  }
}

// read PATH [HOW]: open, fstat, read to the end, close
std::string do_read(const Words& words) {
  const int fd = open(words[1].c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open");
  struct stat st {};
  std::string bytes, answer;
  if (fstat(fd, &st) != 0) {
    answer = failed("fstat");
  } else if (!read_all(fd, words.size() > 2 ? words[2] : "read", bytes)) {
    answer = failed("read");
  } else {
    answer = seen(st.st_size, bytes);
  }
  if (close(fd) != 0) answer += " close failed";
  return answer;
}

// stdio PATH: by fopen and fread
std::string do_stdio(const Words& words) {
  std::FILE* const file = std::fopen(words[1].c_str(), "rb");
  if (file == nullptr) return failed("fopen");
  std::string bytes, buffer(10000, '\0');
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file)) bytes.append(buffer, 0, n);
  const std::string answer = std::ferror(file) != 0 ? failed("fread") : seen(static_cast<long>(bytes.size()), bytes);
  std::fclose(file);
  return answer;
}

// stat PATH
std::string do_stat(const Words& words) {
  struct stat st {};
  return stat(words[1].c_str(), &st) != 0 ? failed("stat") : "size " + std::to_string(st.st_size);
}

// open PATH: keeps it open; the answer is the number
std::string do_open(const Words& words) {
  const int fd = open(words[1].c_str(), O_RDONLY | O_CLOEXEC);
  return fd < 0 ? failed("open") : "fd " + std::to_string(fd);
}
// fd NUMBER [HOW]: from its beginning to its end
std::string do_fd(const Words& words) {
  const int fd = std::stoi(words[1]);
  struct stat st {};
  std::string bytes;
  if (lseek(fd, 0, SEEK_SET) != 0) return failed("lseek");
  if (fstat(fd, &st) != 0) return failed("fstat");
  if (!read_all(fd, words.size() > 2 ? words[2] : "read", bytes)) return failed("read");
  return seen(st.st_size, bytes);
}
// next NUMBER BYTES: what one read gives; at NUMBER OFFSET BYTES: what one pread gives
std::string one_read(const Words& words, std::size_t count_at, const std::function<ssize_t(int, char*, std::size_t)>& call) {
  std::string bytes(std::stoul(words[count_at]), '\0');
  const ssize_t n = call(std::stoi(words[1]), bytes.data(), bytes.size());
  if (n < 0) return failed("read");
  bytes.resize(static_cast<std::size_t>(n));
  return seen(n, bytes);
}
std::string do_next(const Words& words) { return one_read(words, 2, ::read); }
std::string do_at(const Words& words) {
  return one_read(words, 3, [&](int fd, char* to, std::size_t n) { return pread(fd, to, n, std::stol(words[2])); });
}
// offset NUMBER; dup NUMBER; dup2 NUMBER TO
std::string do_offset(const Words& words) { return "at " + std::to_string(lseek(std::stoi(words[1]), 0, SEEK_CUR)); }
std::string do_dup(const Words& words) {
  const int fd = words.size() > 2 ? dup2(std::stoi(words[1]), std::stoi(words[2])) : dup(std::stoi(words[1]));
  return fd < 0 ? failed("dup") : "fd " + std::to_string(fd);
}
// limit N: of fds
std::string do_limit(const Words& words) {
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::stoul(words[1]);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? "limited" : failed("setrlimit");
}
// setfd NUMBER FLAGS [ioctl]: the flags of the number before and after
std::string do_set_fd(const Words& words) {
  const int fd = std::stoi(words[1]), flags = std::stoi(words[2]);
  const int before = fcntl(fd, F_GETFD);
  const int error = words.size() > 3 ? ioctl(fd, flags != 0 ? FIOCLEX : FIONCLEX) : fcntl(fd, F_SETFD, flags);
  if (error != 0) return failed("F_SETFD");
  return "flags " + std::to_string(before) + " " + std::to_string(fcntl(fd, F_GETFD));
}
// forked NUMBER BYTES: a child reads that much, and then we do
std::string do_forked(const Words& words) {
  int answer[2];
  if (pipe(answer) != 0) return failed("pipe");
  const pid_t child = fork_child();
  if (child == 0) {
    _exit(tell(answer, do_next(words)) ? 0 : 1);
  }
  const std::string childs = answer_of(child, answer).text;
  return childs + " then " + do_next(words);
}
// rawforked NUMBER OFFSET BYTES: a child by a clone that passes libc and the library by reads that from the number, and closes it
std::string do_raw_forked(const Words& words) {
  int answer[2];
  if (pipe(answer) != 0) return failed("pipe");
  const long child = cube::base::sys::raw(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool told = tell(answer, do_at({"at", words[1], words[2], words[3]}));
    _exit(close(std::stoi(words[1])) == 0 && told ? 0 : 1);
  }
  const ChildAnswer got = answer_of(static_cast<pid_t>(child), answer);
  return got.status != 0 ? "child ended with " + std::to_string(got.status) : got.text;
}
// executed NUMBER BYTES: a program that the child becomes reads that much from its standard input
std::string do_executed(const Words& words) {
  int answer[2];
  if (pipe(answer) != 0) return failed("pipe");
  const pid_t child = fork_child();
  if (child == 0) {
    dup2(std::stoi(words[1]), 0);
    dup2(answer[1], 1);
    execlp("head", "head", "-c", words[2].c_str(), static_cast<char*>(nullptr));
    _exit(1);
  }
  close(answer[1]);
  std::string bytes;
  if (!read_all(answer[0], "read", bytes)) return failed("read");
  close(answer[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return seen(static_cast<long>(bytes.size()), bytes);
}
// become: an exec of this very program
std::string do_become(const Words&) {
  execl("/proc/self/exe", "crash_host", "became", static_cast<char*>(nullptr));
  return failed("execl");
}
// mapfd NUMBER: the whole file
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
// threads PATH N: that many threads read the one open file by pread, each from another end
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
        if (pread(fd, bytes.data() + at, n, static_cast<off_t>(at)) != static_cast<ssize_t>(n)) return;
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
// start NUMBER OFFSET BYTES: a thread reads by one pread, whose answer `finish` gives
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
// handled NUMBER MILLISECONDS: one read of a byte, into which a signal comes whose handler reads the same file by pread
int g_handled = -1;
ssize_t g_handled_bytes = 0;
char g_handled_buffer[100'000];
std::string do_handled(const Words& words) {
  g_handled = std::stoi(words[1]);
  struct sigaction action {};
  action.sa_handler = [](int) { g_handled_bytes = pread(g_handled, g_handled_buffer, sizeof g_handled_buffer, 0); };
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const long ms = std::stol(words[2]);
  const itimerval when{{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  g_handled_bytes = 0;
  setitimer(ITIMER_REAL, &when, nullptr);
  std::string bytes;
  const bool whole = read_all(g_handled, "read", bytes);
  // However fast the file was read.
  while (g_handled_bytes == 0) pause();
  if (!whole) return failed("read");
  return seen(static_cast<long>(bytes.size()), bytes) + " handler " +
         seen(g_handled_bytes, std::string(g_handled_buffer, static_cast<std::size_t>(std::max<ssize_t>(g_handled_bytes, 0))));
}
// jumped NUMBER BYTES: one read, which SIGUSR1 leaves by a jump
sigjmp_buf g_before_read;
std::string do_jumped(const Words& words) {
  struct sigaction action {};
  action.sa_handler = [](int) { siglongjmp(g_before_read, 1); };
  sigaction(SIGUSR1, &action, nullptr);
  // Not on the stack, for the jump destroys nothing.
  static std::string buffer;
  buffer.resize(std::stoul(words[2]));
  if (sigsetjmp(g_before_read, 1) != 0) return "left";
  const ssize_t n = read(std::stoi(words[1]), buffer.data(), buffer.size());
  return "not left: " + std::to_string(n);
}
std::string do_close(const Words& words) { return close(std::stoi(words[1])) == 0 ? "closed" : failed("close"); }

// kernel NUMBER: a call that only the kernel can answer
std::string do_kernel(const Words& words) {
  return fsync(std::stoi(words[1])) == 0 || errno == EINVAL ? "done" : failed("fsync");
}

// map PATH: the whole file, kept; the answer is what is in it
struct Mapped {
  void* at = nullptr;
  std::size_t size = 0;
} g_mapped;
std::string do_mapped(const Words&) {
  return seen(static_cast<long>(g_mapped.size), std::string(static_cast<const char*>(g_mapped.at), g_mapped.size));
}
std::string do_map(const Words& words) {
  const int fd = open(words[1].c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open");
  struct stat st {};
  if (fstat(fd, &st) != 0) return failed("fstat");
  g_mapped.size = static_cast<std::size_t>(st.st_size);
  g_mapped.at = mmap(nullptr, g_mapped.size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return g_mapped.at == MAP_FAILED ? failed("mmap") : do_mapped(words);
}

// alarmed MILLISECONDS PATH: as read, but a signal whose handler asks for no restart comes in the middle
volatile sig_atomic_t g_signals = 0;
std::string do_alarmed(const Words& words) {
  struct sigaction action {};
  action.sa_handler = [](int) { g_signals = g_signals + 1; };
  sigaction(SIGALRM, &action, nullptr);
  const long ms = std::stol(words[1]);
  const itimerval when{{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  g_signals = 0;
  setitimer(ITIMER_REAL, &when, nullptr);
  const std::string answer = do_read({"read", words[2]});
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  return answer;
}

// child PATH: a forked child reads it too
std::string do_child(const Words& words) {
  int answer[2];
  if (pipe(answer) != 0) return failed("pipe");
  const pid_t child = fork_child();
  if (child == 0) {
    _exit(tell(answer, do_read(words)) ? 0 : 1);
  }
  const ChildAnswer got = answer_of(child, answer);
  return got.status != 0 ? "child ended with " + std::to_string(got.status) : got.text;
}

// write PATH SIZE BYTE: in place; replace: a new file under its name; then remove PATH, truncate PATH SIZE
std::string put(const std::string& path, const Words& words) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return failed("open");
  const std::string bytes(std::stoul(words[2]), words[3][0]);
  const bool whole = write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  return close(fd) == 0 && whole ? "written" : failed("write");
}
std::string do_write(const Words& words) { return put(words[1], words); }
std::string do_replace(const Words& words) {
  const std::string answer = put(words[1] + ".new", words);
  return rename((words[1] + ".new").c_str(), words[1].c_str()) == 0 ? answer : failed("rename");
}
std::string do_remove(const Words& words) { return unlink(words[1].c_str()) == 0 ? "removed" : failed("unlink"); }

// eat BYTES: takes and touches that much memory
std::string do_eat(const Words& words) {
  const std::size_t n = std::stoul(words[1]);
  auto* const at = static_cast<char*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (at == MAP_FAILED) return failed("mmap");
  for (std::size_t i = 0; i < n; i += 4096) at[i] = 1;
  return "eaten";
}

}  // namespace

int main(int argc, char** argv) {
  // Nor do we outlive the driver. It may start us in another pid namespace, so its pid does not tell whether it is gone already.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc > 1) std::cout << argv[1] << std::endl;
  const std::map<std::string, std::string (*)(const Words&)> commands = {{"read", do_read},
                                                                         {"stdio", do_stdio},
                                                                         {"stat", do_stat},
                                                                         {"open", do_open},
                                                                         {"fd", do_fd},
                                                                         {"close", do_close},
                                                                         {"kernel", do_kernel},
                                                                         {"map", do_map},
                                                                         {"mapped", do_mapped},
                                                                         {"alarmed", do_alarmed},
                                                                         {"next", do_next},
                                                                         {"at", do_at},
                                                                         {"offset", do_offset},
                                                                         {"dup", do_dup},
                                                                         {"limit", do_limit},
                                                                         {"setfd", do_set_fd},
                                                                         {"rawforked", do_raw_forked},
                                                                         {"forked", do_forked},
                                                                         {"executed", do_executed},
                                                                         {"become", do_become},
                                                                         {"mapfd", do_map_fd},
                                                                         {"threads", do_threads},
                                                                         {"handled", do_handled},
                                                                         {"jumped", do_jumped},
                                                                         {"start", do_start},
                                                                         {"finish", do_finish},
                                                                         {"child", do_child},
                                                                         {"write", do_write},
                                                                         {"replace", do_replace},
                                                                         {"remove", do_remove},
                                                                         {"eat", do_eat}};
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream text(line);
    Words words;
    for (std::string word; text >> word;) words.push_back(word);
    const auto command = words.empty() ? commands.end() : commands.find(words[0]);
    std::cout << (command == commands.end() ? "unknown command" : command->second(words)) << std::endl;
  }
  return 0;
}
