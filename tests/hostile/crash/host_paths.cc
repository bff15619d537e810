// The host's commands on a file by its path, and on memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "tests/hostile/crash/host.h"

namespace cube::crash {

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

namespace {

// stdio PATH: reads the file by fopen and fread
std::string do_stdio(const Words& words) {
  std::FILE* const file = std::fopen(words[1].c_str(), "rb");
  if (file == nullptr) return failed("fopen");
  std::string bytes, buffer(10000, '\0');
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file))
    bytes.append(buffer, 0, n);
  const std::string answer =
      std::ferror(file) != 0 ? failed("fread") : seen(static_cast<long>(bytes.size()), bytes);
  std::fclose(file);
  return answer;
}
// stat PATH
std::string do_stat(const Words& words) {
  struct stat st {};
  return stat(words[1].c_str(), &st) != 0 ? failed("stat") : "size " + std::to_string(st.st_size);
}
// map PATH: maps the whole file and keeps the mapping; the answer describes its content
struct Mapped {
  void* at = nullptr;
  std::size_t size = 0;
} g_mapped;
std::string do_mapped(const Words&) {
  return seen(static_cast<long>(g_mapped.size),
              std::string(static_cast<const char*>(g_mapped.at), g_mapped.size));
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
// alarmed MILLISECONDS PATH: like read, but a signal interrupts the read every MILLISECONDS. Its
// handler is installed without SA_RESTART.
volatile sig_atomic_t g_signals = 0;
std::string do_alarmed(const Words& words) {
  struct sigaction action {};
  action.sa_handler = [](int) { g_signals = g_signals + 1; };
  sigaction(SIGALRM, &action, nullptr);
  const long ms = std::stol(words[1]);
  // On a busy machine, the first signal can arrive before the read.
  const timeval each{ms / 1000, ms % 1000 * 1000};
  const itimerval when{each, each};
  g_signals = 0;
  setitimer(ITIMER_REAL, &when, nullptr);
  const std::string answer = do_read({"read", words[2]});
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  return answer;
}
// write PATH SIZE BYTE: writes in place. replace PATH SIZE BYTE: puts a new file under the name.
// The next commands are remove PATH and truncate PATH SIZE.
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
std::string do_remove(const Words& words) {
  return unlink(words[1].c_str()) == 0 ? "removed" : failed("unlink");
}
// eat BYTES: allocates and touches that much memory
std::string do_eat(const Words& words) {
  const std::size_t n = std::stoul(words[1]);
  auto* const at = static_cast<char*>(
      mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (at == MAP_FAILED) return failed("mmap");
  for (std::size_t i = 0; i < n; i += 4096) at[i] = 1;
  return "eaten";
}

}  // namespace

Commands path_commands() {
  return {{"read", do_read},   {"stdio", do_stdio},     {"stat", do_stat},
          {"map", do_map},     {"mapped", do_mapped},   {"alarmed", do_alarmed},
          {"write", do_write}, {"replace", do_replace}, {"remove", do_remove},
          {"eat", do_eat}};
}

}  // namespace cube::crash
