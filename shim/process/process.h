// The state of this process that every part of the shim asks for: is it switched on, does it own
// the fd table, which settings and which job has it. lifecycle.h changes it.
//
// A vforked child runs on our memory with an fd table of its own. Code that changes the shim's
// knowledge of fds asks owns_table() first. vfork leaves a mark in the thread (jumps.S), clone
// without CLONE_FILES leaves one in the process, and after a mark getpid decides; a fork that
// passed us by is told by a page that the kernel wipes in the child. So a hit pays for two loads,
// not for a system call. Thread safety: all of it. attached_cache, owns_table and is_active are
// async-signal-safe.
#pragma once

#include "cache/base/log.h"
#include "cache/file_cache.h"
#include "cache/metadata/all_metadata.h"

namespace cube::shim::process {

extern constinit std::atomic<bool> g_active, g_tells;
extern constinit thread_local bool t_vforked [[gnu::tls_model("initial-exec")]];
extern constinit std::atomic<bool> g_memory_is_shared;
extern constinit std::atomic<const std::uint32_t*> g_fork_mark;
bool owns_table_slow();

// Prefixes are set, the mode is not off, and nothing has happened that changes what a path means
// (setuid, chroot ...). Acquire: a thread that another library has started before our constructor
// finds the settings; pairs with start().
inline bool is_active() { return g_active.load(std::memory_order_acquire); }
// This process tells those who have a file cached of its changes: while it serves files, and after
// setuid, chroot and the like, when it serves none any more.
inline bool tells() { return g_tells.load(std::memory_order_acquire); }
// From now on this process serves nothing. `why`: for the log. What ends with that is
// lifecycle.h's.
void disable(const char* why);
[[gnu::always_inline]] inline bool owns_table() {
  // Relaxed: the look at the page needs the pointer, and so comes after it; pairs with the release
  // in make_fork_mark.
  const std::uint32_t* const mark = g_fork_mark.load(std::memory_order_relaxed);
  if (t_vforked || g_memory_is_shared.load(std::memory_order_relaxed) ||
      (mark != nullptr && *mark == 0)) [[unlikely]] {
    return owns_table_slow();
  }
  return true;
}

// Mode real: an open gets a kernel file over the cached bytes. So it is from the begin
// (CUBESHIM_MODE=real), or from the moment on when somebody reads fds past libc.
enum class Copies : std::uint8_t { no, for_now, yes };
extern constinit std::atomic<Copies> g_serves_copies;
inline bool serves_copies() {
  return g_serves_copies.load(std::memory_order_relaxed) != Copies::no;
}

// The origin of each prefix; null before start().
extern constinit std::atomic<const cache::Origins*> g_origins;
inline const cache::Origins* origins() { return g_origins.load(std::memory_order_acquire); }
// The names that the kernel does not have; null: it has all, as nearly always.
extern constinit std::atomic<const cache::AllMetadata*> g_origin_metadata;
inline const cache::AllMetadata* origin_metadata() {
  return g_origin_metadata.load(std::memory_order_acquire);
}

extern constinit const base::Config* g_config;
inline const base::Config& config() { return *g_config; }
// The first process of the job.
const base::ProcessId& job();
void set_job(const base::ProcessId& job);
// A fork that passes us by is seen from here on.
void make_fork_mark();
// This process owns its memory and its fd table: at load, and in each child.
void note_owner();
extern constinit std::atomic<bool> g_sealed;  // a sandbox is on: every call is libc's alone
bool has_list();

// Whether this thread is in the middle of libc's fork (lifecycle.h).
enum class Forking : std::uint8_t { no, begun, is_child };
extern constinit thread_local Forking t_forking [[gnu::tls_model("initial-exec")]];
inline bool is_forking() { return t_forking != Forking::no; }

// Calls that lower files make of higher ones. lifecycle.h names the functions once, at load, before
// any of them is needed.
struct Upcalls {
  void (*become_child)();                // a fork that libc did not see has made this process
  void (*disabled)(const char* why);     // the end of disable()
  void (*before_attaching)();            // nothing has been served yet
  int (*materialize_directory)(int fd);  // of a row that is a listed directory
};
extern constinit const Upcalls* g_upcalls;

// A periodic report, if one is due, and the lines of threads that have no stderr.
void report_if_due_slow(cache::FileCache& cache);
inline void report_if_due(cache::FileCache& cache) {
  if (base::has_kept_lines() || config().stats_interval != 0) [[unlikely]]
    report_if_due_slow(cache);
}

}  // namespace cube::shim::process
