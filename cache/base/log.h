// Writes lines to stderr: "cubeshim: <level>: <text>". Each line is written by one system call, so
// that lines of several processes do not mix. Never allocates or throws. Thread-safe and
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
// Remembers the file of fd 2. Call it when the library is loaded. If fd 2 later refers to another
// file, such as a data file of the program, the library does not write to fd 2.
void remember_stderr();
// Writes the text to stderr with one system call.
void write_to_stderr(std::string_view text);
// Writes the first `size` bytes of `room` to stderr. If stderr is a terminal, the lines are first
// folded in place.
void write_lines_to_stderr(std::span<char> room, std::size_t size);
// Whether stderr is a terminal, and is still the file that it was when the library was loaded.
bool is_stderr_a_terminal();
// Like write_lines_to_stderr, but writes only to a terminal, and never waits for it. A thread with
// its own fd table may call this function, too.
void write_lines_to_terminal(std::span<char> room, std::size_t size);
// Writes the text with one system call. Suppresses the signals that a write can raise: SIGPIPE
// (closed pipe) and SIGXFSZ (file size limit). Returns the kernel's result.
long write_quietly(int fd, std::string_view text);
// Call this in a thread that has its own fd table and therefore no stderr. The thread's log lines
// are then kept until another thread logs a line or calls write_kept_lines(). If more than a few
// lines are waiting, further lines are lost.
void keep_lines_of_this_thread();
void write_kept_lines();
extern constinit std::atomic<int> g_kept_lines;
inline bool has_kept_lines() { return g_kept_lines.load(std::memory_order_relaxed) != 0; }
// Writes a line of the log. Control characters and invalid UTF-8 become '?'.
void write_log_line(LogLevel level, std::string_view text);

// Formats the line in a buffer on the stack. A line that is too long is cut.
void write_log_line(LogLevel level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) write_log_line(level, format, fmt::make_format_args(args...));
}

}  // namespace cube::base
