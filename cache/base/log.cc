#include "cache/base/log.h"

#include <atomic>
#include <cstring>

#include "cache/base/sys.h"

namespace cube::base {
namespace {

constinit std::atomic<int> g_level{static_cast<int>(LogLevel::warn)};
constexpr std::string_view k_names[] = {"error", "warn", "info", "debug"};

}  // namespace

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
  sys::write(STDERR_FILENO, line, n);
}

}  // namespace cube::base
