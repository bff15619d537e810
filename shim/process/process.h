// The state of this process that every part of the shim uses: whether the shim is switched on,
// whether the process owns the fd table, its settings and its job. lifecycle.h changes the state.
//
// A vforked child runs on its parent's memory, but has its own fds in the kernel. So code that
// changes the fd table calls owns_table() first. vfork marks the thread (jumps.S), and clone
// without CLONE_FILES marks the process. While there is a mark, owns_table() compares the PID. A
// fork that bypassed the shim is recognized by a page that the kernel wipes in the child. So a hit
// costs a few loads instead of a system call. Thread-safe. owns_table() and is_active() are
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
// Marks the calling thread, which is about to call vfork. The next owns_table() in the parent
// removes the mark.
void expect_vfork();
// Call this before a child can be in another pid namespace. From then on, owns_table() compares the
// pid namespace as well as the PID.
void expect_other_pid_namespaces();

// True if this process serves files. It does so if prefixes are set and the mode is not `off`,
// until a call (setuid, chroot ...) changes what a path means. The acquire pairs with start(), so
// that a thread that another library started before our constructor sees the settings.
inline bool is_active() { return g_active.load(std::memory_order_acquire); }
// True after our constructor has run. Constructors of other libraries may run earlier.
extern constinit std::atomic<bool> g_is_loaded;
inline bool is_loaded() { return g_is_loaded.load(std::memory_order_acquire); }
// True if this process reports its changes to processes that have a file cached. The process
// reports its changes even after it has stopped serving files (setuid, chroot ...).
inline bool tells() { return g_tells.load(std::memory_order_acquire); }
// Makes this process serve nothing from now on. `why` is for the log. Calls Upcalls::disabled at
// the end, for the parts of the shim that depend on serving.
void disable(const char* why);
[[gnu::always_inline]] inline bool owns_table() {
  // Relaxed suffices, because the load from the page depends on the loaded pointer. Pairs with the
  // release in make_fork_mark.
  const std::uint32_t* const mark = g_fork_mark.load(std::memory_order_relaxed);
  if (t_vforked || g_memory_is_shared.load(std::memory_order_relaxed) ||
      (mark != nullptr && *mark == 0)) [[unlikely]] {
    return owns_table_slow();
  }
  return true;
}

// In mode real, an open returns a kernel file that holds the cached bytes. The process is in this
// mode from its start (CUBESHIM_MODE=real), or as soon as code in the process may read fds without
// libc.
enum class Copies : std::uint8_t { no, for_now, yes };
extern constinit std::atomic<Copies> g_serves_copies;
// True once code that this library does not see may close fds: a ring, or a library whose
// calls bypass this one.
extern constinit std::atomic<bool> g_may_close_unseen;
// The number of rings that are doubted (past_libc.h), including those that are being made. While it
// is not 0, the process is in mode real.
extern constinit std::atomic<int> g_doubted_rings;
inline bool serves_copies() {
  return g_serves_copies.load(std::memory_order_relaxed) != Copies::no ||
         g_doubted_rings.load(std::memory_order_relaxed) != 0;
}

// The origin of each prefix; null before start().
extern constinit std::atomic<const cache::Origins*> g_origins;
inline const cache::Origins* origins() { return g_origins.load(std::memory_order_acquire); }
// The metadata of files that the kernel does not have. Null if the kernel has all files, as is
// usual.
extern constinit std::atomic<const cache::AllMetadata*> g_origin_metadata;
inline const cache::AllMetadata* origin_metadata() {
  return g_origin_metadata.load(std::memory_order_acquire);
}

extern constinit const base::Config* g_config;
inline const base::Config& config() { return *g_config; }
// The first process of the job.
const base::ProcessId& job();
void set_job(const base::ProcessId& job);
// Call this once. From then on, a fork that bypasses the shim is noticed.
void make_fork_mark();
// Notes that this process owns its memory and its fd table. Called at load, and in each child.
void note_owner();
extern constinit std::atomic<bool> g_speaks;  // this process writes the job's report at its exit
extern constinit std::atomic<bool> g_sealed;  // in a sandbox: every call is left to libc
// True if the settings name buckets. False before the library's constructor has run, because
// constructors of other libraries may call this earlier. False in a sandbox, which may kill the
// process for a system call that looks for copies of objects.
inline bool has_buckets() {
  return g_config != nullptr && !g_config->buckets.empty() &&
         !g_sealed.load(std::memory_order_relaxed);
}
bool has_list();

// The progress of this thread in libc's fork (fork.h).
enum class Forking : std::uint8_t { no, begun, is_child };
extern constinit thread_local Forking t_forking [[gnu::tls_model("initial-exec")]];
inline bool is_forking() { return t_forking != Forking::no; }

// Functions of higher layers that lower layers call. lifecycle.h sets them at load, before any of
// them is needed.
struct Upcalls {
  void (*become_child)();                // called in a process that a fork without libc has made
  void (*disabled)(const char* why);     // called at the end of disable()
  void (*before_attaching)();            // called before anything has been served
  int (*materialize_directory)(int fd);  // for an fd whose row is a mount's listed directory
};
extern constinit const Upcalls* g_upcalls;

// Writes the periodic report if it is due, and the log lines of threads that have no stderr.
void report_if_due_slow(cache::FileCache& cache);
inline void report_if_due(cache::FileCache& cache) {
  if (base::has_kept_lines() || config().stats_interval != 0) [[unlikely]]
    report_if_due_slow(cache);
}

}  // namespace cube::shim::process
