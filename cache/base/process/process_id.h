// Identifies a process by its pid, the pid namespace, and the start time of the process. A process
// that reuses the pid of an earlier process has another start time. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace cube::base {

struct ProcessId {
  std::uint32_t pid = 0;
  std::uint64_t start_time =
      0;  // clock ticks since boot: field 22 of /proc/PID/stat, without the shift of a time
          // namespace; if /proc is unreadable, the time of the first current_process() call
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid; 0 if /proc is missing

  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

enum class Liveness { alive, dead, unknown };

ProcessId current_process();
// The inode of the process's pid namespace; 0 if /proc is missing. A child in a new namespace can
// have the same pid as its parent.
std::uint64_t own_pid_namespace();

// Whether the process is alive. `unknown`: the process has another pid namespace. A zombie is dead,
// because it no longer holds memory. If the process's entry in /proc cannot be read (no fd is left,
// or /proc is missing or shows another namespace), the process counts as alive while its pid
// exists.
Liveness liveness_of(const ProcessId& process);

// Whether the given process has the same effective user as this process. Also true if the user of
// the given process is not known.
bool is_of_this_user(const ProcessId& process);
// Returns a hash of the first 1024 bytes of this process's command and arguments. 0: they cannot be
// read.
std::uint64_t hash_of_own_command();
// Whether the other process runs the same command with the same arguments, and is neither the
// parent nor a child of this process. The caller passes the hash_of_own_command() of both, because
// reading the other process's command blocks while a thread of that process hangs in mmap. False if
// a hash is 0, or if /proc does not show the other process.
bool is_twin(const ProcessId& other, std::uint64_t other_command, std::uint64_t own_command);
// These functions parse and format "PID.START.NAMESPACE". False: the text does not parse.
bool parse_process_id(std::string_view text, ProcessId& process);
std::size_t format_process_id(const ProcessId& process, char* to, std::size_t capacity);

}  // namespace cube::base
