// One line on stderr: "cubeshim: <level>: <text>". Nothing is allocated and nothing can throw; a line is written with
// one system call, so that lines of several processes do not mix. Thread safety and async-signal safety: yes.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace cube::base {

enum class LogLevel : int { error, warn, info, debug };

void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
// At load: what stderr is. When the program has made something else of fd 2 - a data file, say - nothing is written.
void remember_stderr();
// Text of ours to stderr, as one write.
void write_to_stderr(std::string_view text);
// One write, without the signals that a reader who has gone or a file at its limit would bring. What the kernel says.
long write_quietly(int fd, std::string_view text);
// For a thread with an fd table of its own, where there is no stderr: its lines are kept, a few at a time, until another
// thread logs something or asks for them.
void keep_lines_of_this_thread();
void write_kept_lines();
// Control characters and what is not UTF-8 become '?'.
void write_log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (!log_enabled(level)) return;
  char text[1024];
  const auto end = fmt::format_to_n(text, sizeof text, format, static_cast<Args&&>(args)...);
  write_log_line(level, std::string_view(text, static_cast<std::size_t>(end.out - text)));
}

}  // namespace cube::base
