// Writes lines to stderr: "cubeshim: <level>: <text>". It neither allocates nor throws, and writes
// each line with one system call, so that lines of several processes do not mix. Thread-safe and
// async-signal-safe.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <string_view>

namespace cube::base {

enum class LogLevel : int { error, warn, info, debug };

void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
// Called at load. If fd 2 later refers to another file of the program, such as a data file, the
// library writes nothing to it.
void remember_stderr();
// Writes text of the library to stderr with one write.
void write_to_stderr(std::string_view text);
// Writes the first `size` bytes of `room` to stderr. If stderr is a terminal, the lines are first
// folded in place.
void write_lines_to_stderr(std::span<char> room, std::size_t size);
// Whether stderr is a terminal, and still the same file as at load.
bool is_stderr_a_terminal();
// Like write_lines_to_stderr, but only if stderr is a terminal, and without waiting for the
// terminal. A thread with its own fd table may call it, too.
void write_lines_to_terminal(std::span<char> room, std::size_t size);
// Writes the text with one write. The signals for a closed pipe (SIGPIPE) and for a file at its
// limit (SIGXFSZ) are suppressed. Returns the result of the kernel's write.
long write_quietly(int fd, std::string_view text);
// Call this in a thread that has its own fd table and therefore no stderr. A few of its lines are
// then kept until another thread logs a line or calls write_kept_lines().
void keep_lines_of_this_thread();
void write_kept_lines();
extern constinit std::atomic<int> g_kept_lines;
inline bool has_kept_lines() { return g_kept_lines.load(std::memory_order_relaxed) != 0; }
// Control characters and invalid UTF-8 become '?'.
void write_log_line(LogLevel level, std::string_view text);

// Formats into a buffer on the stack; a longer line is cut.
void write_log_line(LogLevel level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) write_log_line(level, format, fmt::make_format_args(args...));
}

}  // namespace cube::base
