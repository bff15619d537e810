// cubeshim_node_reader LIST: reads files, with or without a preloaded library. LIST has their
// paths, one per line; FILE in a command is the number of a line, from 0. Each line on stdin is a
// command and is answered with one line of JSON. bench/cluster/nodes.py drives it.
//   read PAUSE FILE...   opens, reads and closes these files in this order, and sleeps PAUSE
//                        microseconds before each
//   steps FILE           how many instructions an open, fstat, read and close of the file take,
//                        once it has been read
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t k_long_open_ns = 10'000'000;  // longer opens are listed

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw std::runtime_error(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

std::uint64_t now_ns(clockid_t clock) {
  timespec ts{};
  clock_gettime(clock, &ts);
  return static_cast<std::uint64_t>(ts.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(ts.tv_nsec);
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream list(path);
  std::vector<std::string> found;
  for (std::string line; std::getline(list, line);) found.push_back(line);
  if (found.empty()) throw std::runtime_error(path + ": a list without files");
  return found;
}

// The results of one `read`. The digest covers each file and its number, and does not depend on the
// order.
struct Found {
  std::uint64_t bytes = 0, digest = 0, longest_ns = 0;
  std::vector<std::uint64_t> long_opens_ns;
};

class Reader {
 public:
  explicit Reader(std::vector<std::string> files) : files_(std::move(files)) {}

  const std::string& path(std::size_t file) const { return files_.at(file); }

  void read(std::size_t file, Found& found) {
    const std::uint64_t began = now_ns(CLOCK_MONOTONIC);
    const int fd = open(path(file).c_str(), O_RDONLY | O_CLOEXEC);
    const std::uint64_t took = now_ns(CLOCK_MONOTONIC) - began;
    if (fd < 0) fail(path(file), "open");
    const std::size_t size = read_open(fd, path(file));
    found.bytes += size;
    found.digest += XXH3_64bits_withSeed(buffer_.data(), size, file);
    found.longest_ns = std::max(found.longest_ns, took);
    if (took >= k_long_open_ns) found.long_opens_ns.push_back(took);
  }

  // Makes only the calls, for `steps`.
  void touch(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) read_open(fd, path);
  }

 private:
  std::size_t read_open(int fd, const std::string& path) {
    struct stat st {};
    if (fstat(fd, &st) != 0) fail(path, "fstat");
    const auto size = static_cast<std::size_t>(st.st_size);
    if (buffer_.size() < size) buffer_.resize(size);
    for (std::size_t at = 0; at < size;) {
      const ssize_t got = ::read(fd, buffer_.data() + at, size - at);
      if (got <= 0) fail(path, got == 0 ? "shorter than its stat says" : "read");
      at += static_cast<std::size_t>(got);
    }
    close(fd);
    return size;
  }

  std::vector<std::string> files_;
  std::vector<char> buffer_;
};

void answer_read(Reader& reader, std::istringstream& words) {
  std::int64_t pause_us = 0;
  words >> pause_us;
  std::vector<std::size_t> order;
  for (std::size_t file = 0; words >> file;) order.push_back(file);
  const timespec pause{0, static_cast<long>(pause_us * 1000)};
  Found found;
  const std::uint64_t began = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  for (const std::size_t file : order) {
    if (pause_us > 0) nanosleep(&pause, nullptr);
    reader.read(file, found);
  }
  fmt::print(
      "{{\"begin_ns\": {}, \"end_ns\": {}, \"cpu_ns\": {}, \"files\": {}, \"bytes\": {}, "
      "\"digest\": {}, \"longest_ns\": {}, "
      "\"long_opens_ns\": [{}]}}\n",
      began, now_ns(CLOCK_MONOTONIC), now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu, order.size(),
      found.bytes, found.digest, found.longest_ns, fmt::join(found.long_opens_ns, ", "));
}

// Single-steps the child from one raise() to the next.
void answer_steps(Reader& reader, std::istringstream& words) {
  std::size_t file = 0;
  words >> file;
  const char* path = reader.path(file).c_str();
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    for (int turn = 0; turn < 3; ++turn) reader.touch(path);
    raise(SIGSTOP);
    reader.touch(path);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  std::uint64_t steps = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP)
    throw std::runtime_error("the traced child did not stop");
  do {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) fail(path, "ptrace");
    waitpid(child, &status, 0);
    ++steps;
  } while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
  ptrace(PTRACE_CONT, child, nullptr, nullptr);
  waitpid(child, &status, 0);
  fmt::print("{{\"steps\": {}}}\n", steps);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: cubeshim_node_reader LIST\n");
    return 2;
  }
  try {
    Reader reader(lines_of(argv[1]));
    fmt::print("{{\"ready\": true}}\n");
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string what;
      words >> what;
      if (what == "read") {
        answer_read(reader, words);
      } else if (what == "steps") {
        answer_steps(reader, words);
      } else {
        throw std::runtime_error("no such line: " + what);
      }
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "cubeshim_node_reader: {}\n", error.what());
    return 1;
  }
  return 0;
}
