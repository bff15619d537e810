// Which process: its pid, when it started (so that a reused pid is another process) and the pid
// namespace in which the pid means something. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace cube::base {

struct ProcessId {
  std::uint32_t pid = 0;
  std::uint64_t start_time =
      0;  // clock ticks since boot, field 22 of /proc/PID/stat without the shift of a time
          // namespace; where that cannot be read, when the process first asked
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid; 0 where /proc is missing

  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

enum class Liveness { alive, dead, unknown };

ProcessId current_process();

// `unknown` for a process of another pid namespace. A zombie is dead: it holds no memory any more.
// A process of this namespace that cannot be looked at (no fd is left, /proc is missing or that of
// another namespace) is alive while there is its pid.
Liveness liveness_of(const ProcessId& process);

// Does it act for the user that we act for? True where that cannot be seen.
bool is_of_this_user(const ProcessId& process);
// "PID.START.NAMESPACE", and back; false where it does not parse.
bool parse_process_id(std::string_view text, ProcessId& process);
std::size_t format_process_id(const ProcessId& process, char* to, std::size_t capacity);

}  // namespace cube::base
