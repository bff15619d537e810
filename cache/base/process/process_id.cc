#include "cache/base/process/process_id.h"

#include <fmt/core.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <limits>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/sys.h"

namespace cube::base {
namespace {

struct StatLine {
  char state = '?';
  std::uint32_t parent = 0;
  std::uint64_t threads = 0;
  std::uint64_t start_time = 0;
};

// The command name in field 2 may contain spaces and parentheses, so fields are counted from the
// last ')'.
bool read_stat_line(const char* path, StatLine& line) {
  char text[1024];
  const long n = sys::read_small_file(path, text, sizeof text);
  if (sys::failed(n)) return false;
  std::string_view rest(text, static_cast<std::size_t>(n));
  const std::size_t paren = rest.rfind(')');
  if (paren == std::string_view::npos || paren + 2 >= rest.size()) return false;
  rest.remove_prefix(paren + 2);
  line.state = rest.front();
  for (int field = 3; field < 22; ++field) {
    const std::size_t space = rest.find(' ');
    if (space == std::string_view::npos) return false;
    rest.remove_prefix(space + 1);
    if (field + 1 == 4) std::from_chars(rest.data(), rest.data() + rest.size(), line.parent);
    if (field + 1 == 20) std::from_chars(rest.data(), rest.data() + rest.size(), line.threads);
  }
  if (std::from_chars(rest.data(), rest.data() + rest.size(), line.start_time).ec != std::errc{})
    return false;
  // Undoes the shift of the time namespace. The kernel shifts the start time of any process by the
  // offset of the reader's namespace.
  constexpr std::int64_t k_tick_ns = 10'000'000;
  line.start_time -=
      static_cast<std::uint64_t>(static_cast<std::int64_t>(g_clock_shifts.boot_ns) / k_tick_ns);
  return true;
}

// `process`: the directory of the process in /proc. Reads the line of the process's first thread,
// which has the same numbers as the line of the process. The line of the process cannot be used
// under qemu-user, which runs containers of another architecture. qemu-user makes up the calling
// process's own line, with another start time. The line of the first thread always comes from the
// kernel.
bool read_stat_of(const char* process, std::uint32_t pid, StatLine& line) {
  char path[64];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/task/{}/stat", process, pid).out = '\0';
  if (read_stat_line(path, line)) return true;
  // In a /proc of another pid namespace, this process has a different pid.
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/stat", process).out = '\0';
  return read_stat_line(path, line);
}

// A /proc that was mounted in another pid namespace shows other processes under the pids of this
// namespace.
bool has_own_proc() {
  char text[16];
  const long n = sys::readlink("/proc/self", text, sizeof text);
  std::uint32_t pid = 0;
  return !sys::failed(n) && std::from_chars(text, text + n, pid).ec == std::errc{} &&
         pid == static_cast<std::uint32_t>(sys::getpid());
}

// The kernel adds the offset of the reader's time namespace before it rounds to ticks. So two
// readers can see start times that differ by one tick. In practice, no pid is used again so soon.
bool is_started_at(const StatLine& line, const ProcessId& process) {
  return line.start_time - process.start_time + 1 <= 2;
}

// Marks a substitute for a start time. No real start time has this bit.
constexpr std::uint64_t k_first_asked = 1ULL << 63;

// Returns a substitute for the start time if /proc cannot be read. The substitute is a time,
// because two containers that use the same pids in succession must not count as one job.
std::uint64_t first_asked(std::uint32_t pid) {
  static constinit std::atomic<std::uint64_t> time{0};
  static constinit std::atomic<std::uint32_t> asked_by{0};
  // A forked child gets its own time.
  if (asked_by.exchange(pid, std::memory_order_relaxed) != pid)
    time.store(boot_ns() | k_first_asked, std::memory_order_relaxed);
  return time.load(std::memory_order_relaxed);
}

}  // namespace

std::uint64_t own_pid_namespace() {
  struct ::stat st {};
  if (sys::failed(sys::fstatat(AT_FDCWD, "/proc/self/ns/pid", &st, 0))) return 0;
  return st.st_ino;
}

ProcessId current_process() {
  find_clock_shifts();
  ProcessId process;
  process.pid = static_cast<std::uint32_t>(sys::getpid());
  StatLine line;
  process.start_time =
      read_stat_of("self", process.pid, line) ? line.start_time : first_asked(process.pid);
  process.pid_namespace = own_pid_namespace();
  return process;
}

Liveness liveness_of(const ProcessId& process) {
  if (process.pid_namespace != own_pid_namespace()) return Liveness::unknown;
  if (sys::raw(SYS_kill, static_cast<long>(process.pid), 0) == -ESRCH) return Liveness::dead;
  char folder[16];
  *fmt::format_to_n(folder, sizeof folder - 1, "{}", process.pid).out = '\0';
  StatLine line;
  if ((process.start_time & k_first_asked) != 0 || !has_own_proc() ||
      !read_stat_of(folder, process.pid, line))
    return Liveness::alive;
  // If the first thread has ended before the other threads, the process looks like a zombie, but is
  // alive.
  const bool gone = (line.state == 'Z' || line.state == 'X') && line.threads <= 1;
  const bool same = is_started_at(line, process) && !gone;
  return same ? Liveness::alive : Liveness::dead;
}

bool is_of_this_user(const ProcessId& process) {
  if (!has_own_proc()) return true;
  char path[64], text[2048];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/status", process.pid).out = '\0';
  const long n = sys::read_small_file(path, text, sizeof text);
  if (sys::failed(n)) return true;
  // The line lists the real user, then the effective user. The owner of the directory in /proc does
  // not help: the owner is root if the process must not be dumped.
  const std::string_view all(text, static_cast<std::size_t>(n));
  constexpr std::string_view k_label = "\nUid:\t";
  const std::size_t at = all.find(k_label);
  if (at == std::string_view::npos) return true;
  const std::size_t effective = all.find('\t', at + k_label.size());
  if (effective == std::string_view::npos) return true;
  long user = -1;
  std::from_chars(all.data() + effective + 1, all.data() + all.size(), user);
  return user == sys::raw(SYS_geteuid);
}

std::uint64_t hash_of_own_command() {
  char text[1024];
  const long n = sys::read_small_file("/proc/self/cmdline", text, sizeof text);
  return sys::failed(n) ? 0 : hash_bytes(text, static_cast<std::size_t>(n));
}

bool is_twin(const ProcessId& other, std::uint64_t other_command, std::uint64_t own_command) {
  if (own_command == 0 || other_command != own_command) return false;
  if (!has_own_proc() || other.pid_namespace != own_pid_namespace()) return false;
  char folder[16];
  *fmt::format_to_n(folder, sizeof folder - 1, "{}", other.pid).out = '\0';
  StatLine line;
  return read_stat_of(folder, other.pid, line) && is_started_at(line, other) &&
         line.parent != static_cast<std::uint32_t>(sys::getpid()) &&
         other.pid != static_cast<std::uint32_t>(sys::raw(SYS_getppid));
}

bool parse_process_id(std::string_view text, ProcessId& process) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](auto& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc{};
  };
  const auto dot = [&] { return at != end && *at++ == '.'; };
  const bool whole = number(process.pid) && dot() && number(process.start_time) && dot() &&
                     number(process.pid_namespace);
  // The pid must be positive: for kill(2), 0 and negative numbers do not mean a single process, and
  // in the region, 0 marks a free row.
  return whole && at == end && process.pid != 0 &&
         process.pid <= std::numeric_limits<std::int32_t>::max();
}

std::size_t format_process_id(const ProcessId& process, char* to, std::size_t capacity) {
  const auto end = fmt::format_to_n(to, capacity - 1, "{}.{}.{}", process.pid, process.start_time,
                                    process.pid_namespace);
  *end.out = '\0';
  return static_cast<std::size_t>(end.out - to);
}

}  // namespace cube::base
