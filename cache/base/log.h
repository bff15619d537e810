// One line on stderr: "cubeshim: <level>: <text>". Nothing is allocated and nothing can throw; a
// line is written with one system call, so that lines of several processes do not mix. Thread
// safety and async-signal safety: yes.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <string_view>

namespace cube::base {

enum class LogLevel : int { error, warn, info, debug };

void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
// At load: what stderr is. When the program has made something else of fd 2 - a data file, say -
// nothing is written.
void remember_stderr();
// Text of ours to stderr, as one write.
void write_to_stderr(std::string_view text);
// One write, without the signals that a reader who has gone or a file at its limit would bring.
// Returns the result of the kernel's write.
long write_quietly(int fd, std::string_view text);
// For a thread with an fd table of its own, where there is no stderr: its lines are kept, a few at
// a time, until another thread logs something or asks for them.
void keep_lines_of_this_thread();
void write_kept_lines();
extern constinit std::atomic<int> g_kept_lines;
inline bool has_kept_lines() { return g_kept_lines.load(std::memory_order_relaxed) != 0; }
// Control characters and what is not UTF-8 become '?'.
void write_log_line(LogLevel level, std::string_view text);

// Formats into a buffer on the stack; what is longer is cut.
void write_log_line(LogLevel level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) write_log_line(level, format, fmt::make_format_args(args...));
}

}  // namespace cube::base
