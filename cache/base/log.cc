#include "cache/base/log.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "cache/base/sys.h"

namespace cube::base {
namespace {

constinit std::atomic<int> g_level{static_cast<int>(LogLevel::warn)};
constexpr std::string_view k_names[] = {"error", "warn", "info", "debug"};

constinit std::atomic<std::uint64_t> g_stderr_device{0}, g_stderr_inode{0};
constinit std::atomic<bool> g_stderr_known{false};

}  // namespace

void remember_stderr() {
  struct ::stat st {};
  if (!sys::failed(sys::fstat(STDERR_FILENO, &st))) {
    g_stderr_device.store(st.st_dev, std::memory_order_relaxed);
    g_stderr_inode.store(st.st_ino, std::memory_order_relaxed);
  }
  g_stderr_known.store(true, std::memory_order_release);
}

void write_to_stderr(std::string_view text) {
  struct ::stat st {};
  if (g_stderr_known.load(std::memory_order_acquire) &&
      (sys::failed(sys::fstat(STDERR_FILENO, &st)) || st.st_dev != g_stderr_device.load(std::memory_order_relaxed) ||
       st.st_ino != g_stderr_inode.load(std::memory_order_relaxed))) {
    return;
  }
  const std::uint64_t pipe = 1ULL << (SIGPIPE - 1);
  std::uint64_t before = 0, pending = 0;
  sys::raw(SYS_rt_sigpending, sys::arg(&pending), sizeof pending);
  sys::raw(SYS_rt_sigprocmask, SIG_BLOCK, sys::arg(&pipe), sys::arg(&before), sizeof before);
  const long n = sys::write(STDERR_FILENO, text.data(), text.size());
  if (n == -EPIPE && (pending & pipe) == 0) {
    const timespec now{0, 0};
    sys::raw(SYS_rt_sigtimedwait, sys::arg(&pipe), 0, sys::arg(&now), sizeof pipe);
  }
  sys::raw(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&before), 0, sizeof before);
}

void set_log_level(LogLevel level) { g_level.store(static_cast<int>(level), std::memory_order_relaxed); }

bool log_enabled(LogLevel level) { return static_cast<int>(level) <= g_level.load(std::memory_order_relaxed); }

void write_log_line(LogLevel level, std::string_view text) {
  char line[1100];
  std::size_t n = 0;
  const auto append = [&](std::string_view part) {
    for (const char c : part) {
      if (n == sizeof line - 1) return;
      // A file name may hold a newline; one report stays one line.
      line[n++] = (c == '\n' || c == '\r') ? '?' : c;
    }
  };
  append("cubeshim: ");
  append(k_names[static_cast<int>(level)]);
  append(": ");
  append(text);
  line[n++] = '\n';
  write_to_stderr({line, n});
}

}  // namespace cube::base
