#include "cache/base/log.h"

#include <asm/ioctls.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "cache/base/fold_lines.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"

namespace cube::base {

constinit std::atomic<int> g_kept_lines{0};

namespace {

constinit std::atomic<int> g_level{static_cast<int>(LogLevel::warn)};
constexpr std::string_view k_names[] = {"error", "warn", "info", "debug"};

constinit std::atomic<std::uint64_t> g_stderr_device{0}, g_stderr_inode{0};
constinit std::atomic<bool> g_stderr_known{false}, g_stderr_is_device{false};

constexpr std::size_t k_longest_line = 1100, k_room_to_fold = 150;

// Lines of threads without a stderr, kept for a thread that has one.
struct KeptLine {
  enum State : int { free, in_use, full };
  std::size_t size;
  std::atomic<int> state;
  char text[k_longest_line + k_room_to_fold];
};
constinit KeptLine g_kept[8] = {};
constinit thread_local bool t_keeps_lines [[gnu::tls_model("initial-exec")]] = false;

void keep_line(std::string_view line) {
  for (KeptLine& kept : g_kept) {
    int free = KeptLine::free;
    if (!kept.state.compare_exchange_strong(free, KeptLine::in_use, std::memory_order_acquire))
      continue;
    kept.size = line.size();
    std::memcpy(kept.text, line.data(), line.size());
    kept.state.store(KeptLine::full, std::memory_order_release);
    g_kept_lines.fetch_add(1, std::memory_order_release);
    return;
  }
}

// The length of the first character in bytes, if it is valid UTF-8 and not a control character;
// otherwise 0.
std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return first >= ' ' && first != 0x7f ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t n = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Excludes the control characters U+0080 to U+009F, overlong forms, and values above U+10FFFF.
  if ((first == 0xc2 || first == 0xe0) && second < 0xa0) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return n;
}

// Whether this fd still refers to the file that it referred to at load.
bool is_stderr_of_load(int fd) {
  struct ::stat st {};
  return !g_stderr_known.load(std::memory_order_acquire) ||
         (!sys::failed(sys::fstat(fd, &st)) &&
          st.st_dev == g_stderr_device.load(std::memory_order_relaxed) &&
          st.st_ino == g_stderr_inode.load(std::memory_order_relaxed));
}

void write_folded(int fd, std::span<char> room, std::size_t size) {
  unsigned short sizes[4];  // the kernel's struct winsize: rows, columns, ...
  const bool is_known = !sys::failed(sys::raw(SYS_ioctl, fd, TIOCGWINSZ, sys::arg(sizes)));
  write_quietly(fd, {room.data(), fold_lines(room, size, is_known ? sizes[1] : 0)});
}

bool is_terminal(int fd) {
  char attributes[256];  // the kernel's struct termios, which libc's headers do not have
  return !sys::failed(sys::raw(SYS_ioctl, fd, TCGETS, sys::arg(attributes)));
}

}  // namespace

bool is_stderr_a_terminal() {
  return is_terminal(STDERR_FILENO) && is_stderr_of_load(STDERR_FILENO);
}

void write_lines_to_terminal(std::span<char> room, std::size_t size) {
  // Opens the stderr of the process's first thread.
  const ProcFdName name(STDERR_FILENO, ProcFdName::Table::process);
  const auto terminal = open_fd(name.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK);
  if (terminal && is_terminal(terminal->get()) && is_stderr_of_load(terminal->get()))
    write_folded(terminal->get(), room, size);
}

void remember_stderr() {
  struct ::stat st {};
  if (!sys::failed(sys::fstat(STDERR_FILENO, &st))) {
    g_stderr_device.store(st.st_dev, std::memory_order_relaxed);
    g_stderr_inode.store(st.st_ino, std::memory_order_relaxed);
    g_stderr_is_device.store(S_ISCHR(st.st_mode), std::memory_order_relaxed);
  }
  g_stderr_known.store(true, std::memory_order_release);
}

long write_quietly(int fd, std::string_view text) {
  const auto bit = [](int signal) { return 1ULL << (signal - 1); };
  const std::uint64_t both = bit(SIGPIPE) | bit(SIGXFSZ);
  std::uint64_t before = 0, pending = 0;
  sys::raw(SYS_rt_sigpending, sys::arg(&pending), sizeof pending);
  sys::raw(SYS_rt_sigprocmask, SIG_BLOCK, sys::arg(&both), sys::arg(&before), sizeof before);
  const long n = sys::write(fd, text.data(), text.size());
  const std::uint64_t raised = n == -EPIPE ? bit(SIGPIPE) : n == -EFBIG ? bit(SIGXFSZ) : 0;
  if ((raised & ~pending) != 0) {
    const timespec now{0, 0};
    sys::raw(SYS_rt_sigtimedwait, sys::arg(&raised), 0, sys::arg(&now), sizeof raised);
  }
  sys::raw(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&before), 0, sizeof before);
  return n;
}

void write_to_stderr(std::string_view text) {
  if (is_stderr_of_load(STDERR_FILENO)) write_quietly(STDERR_FILENO, text);
}

void write_lines_to_stderr(std::span<char> room, std::size_t size) {
  if (!is_stderr_of_load(STDERR_FILENO)) return;
  // A sandbox may kill the process for an ioctl, so write_folded() is called only for a character
  // device.
  if (g_stderr_is_device.load(std::memory_order_relaxed))
    return write_folded(STDERR_FILENO, room, size);
  write_quietly(STDERR_FILENO, {room.data(), size});
}

void set_log_level(LogLevel level) {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) {
  return static_cast<int>(level) <= g_level.load(std::memory_order_relaxed);
}

void keep_lines_of_this_thread() { t_keeps_lines = true; }

void write_kept_lines() {
  if (!has_kept_lines() || t_keeps_lines) return;
  for (KeptLine& kept : g_kept) {
    int full = KeptLine::full;
    if (!kept.state.compare_exchange_strong(full, KeptLine::in_use, std::memory_order_acquire))
      continue;
    write_lines_to_stderr(kept.text, kept.size);
    g_kept_lines.fetch_sub(1, std::memory_order_relaxed);
    kept.state.store(KeptLine::free, std::memory_order_release);
  }
}

void write_log_line(LogLevel level, fmt::string_view format, fmt::format_args args) {
  char text[1024];
  const auto end = fmt::vformat_to_n(text, sizeof text, format, args);
  write_log_line(level, std::string_view(text, static_cast<std::size_t>(end.out - text)));
}

void write_log_line(LogLevel level, std::string_view text) {
  write_kept_lines();
  char line[k_longest_line + k_room_to_fold];
  std::size_t n = 0;
  const auto append = [&](std::string_view part) {
    while (!part.empty()) {
      // A file name may contain a newline or an escape sequence, and a line must stay one line of
      // plain text.
      const std::size_t length = printable_length(part);
      if (n + std::max<std::size_t>(length, 1) > k_longest_line - 1) return;
      if (length == 0) line[n++] = '?';
      for (std::size_t i = 0; i < length; ++i) line[n++] = part[i];
      part.remove_prefix(std::max<std::size_t>(length, 1));
    }
  };
  append("cubeshim: ");
  append(k_names[static_cast<int>(level)]);
  append(": ");
  append(text);
  line[n++] = '\n';
  if (t_keeps_lines) return keep_line({line, n});
  write_lines_to_stderr(line, n);
}

}  // namespace cube::base
