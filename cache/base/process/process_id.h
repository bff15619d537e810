// Identifies a process by its pid, the pid namespace, and the start time of the process. A process
// that reuses the pid of an earlier process has another start time. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace cube::base {

struct ProcessId {
  std::uint32_t pid = 0;
  std::uint64_t start_time =
      0;  // clock ticks since boot, field 22 of /proc/PID/stat without the shift of a time
          // namespace; if that cannot be read, the time of the process's first call
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid; 0 if /proc is missing

  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

enum class Liveness { alive, dead, unknown };

ProcessId current_process();

// `unknown` for a process of another pid namespace. A zombie is dead, because it no longer holds
// memory. The /proc entry may be unreadable: no fd is left, or /proc is missing or shows another
// namespace. A process of this namespace then counts as alive while its pid exists.
Liveness liveness_of(const ProcessId& process);

// Whether the process has the effective user of this process. Also true if its user is not known.
bool is_of_this_user(const ProcessId& process);
// Parse and format "PID.START.NAMESPACE". False: the text does not parse.
bool parse_process_id(std::string_view text, ProcessId& process);
std::size_t format_process_id(const ProcessId& process, char* to, std::size_t capacity);

}  // namespace cube::base
