// This process as the shim sees it: is it switched on, is the caller the process whose memory this is, which cache.
//
// A vforked child runs on our memory with an fd table of its own. Code that changes the shim's knowledge of fds asks owns_table()
// first. vfork leaves a mark in the thread (jumps.S), clone without CLONE_FILES leaves one in the process, and after a mark
// getpid decides; a fork that passed us by is told by a page that the kernel wipes in the child. So a hit pays for two loads, not
// for a system call. Thread safety: all of it. attached_cache, owns_table and is_active are async-signal-safe.
#pragma once

#include "cache/base/log.h"
#include "cache/file_cache.h"
#include "cache/names/all_names.h"

namespace cube::shim::process {

// From the constructor, once. The one process that `speaks` for its job writes the report when it ends.
void start(const base::Config& config, const base::ProcessId& job, bool speaks);

extern constinit std::atomic<bool> g_active, g_tells;
extern constinit thread_local bool t_vforked [[gnu::tls_model("initial-exec")]];
extern constinit std::atomic<bool> g_memory_is_shared;
extern constinit std::atomic<const std::uint32_t*> g_fork_mark;
bool owns_table_slow();

// Prefixes are set, the mode is not off, and nothing has happened that changes what a path means (setuid, chroot ...).
// Acquire: a thread that another library has started before our constructor finds the settings; pairs with start().
inline bool is_active() { return g_active.load(std::memory_order_acquire); }
// This process tells those who have a file cached of its changes: while it serves files, and after setuid, chroot and the like,
// when it serves none any more.
inline bool tells() { return g_tells.load(std::memory_order_acquire); }
void disable(const char* why);
// Before a call that changes what paths or permissions mean, and for which disable() follows: the region is found by the user's
// name, and whoever has none by then could tell nobody of its changes.
void prepare_identity();
// Before a sandbox is put on from inside (seccomp): it may kill for any call that the program itself does not make. Served
// files become real, what is to be said is said, the cache is let go, and from then on every call is libc's alone.
void seal();

[[gnu::always_inline]] inline bool owns_table() {
  // Relaxed: the look at the page needs the pointer, and so comes after it; pairs with the release in make_fork_mark.
  const std::uint32_t* const mark = g_fork_mark.load(std::memory_order_relaxed);
  if (t_vforked || g_memory_is_shared.load(std::memory_order_relaxed) || (mark != nullptr && *mark == 0)) [[unlikely]] {
    return owns_table_slow();
  }
  return true;
}

// Mode real: an open gets a kernel file over the cached bytes. So it is from the begin (CUBESHIM_MODE=real), or from the moment
// on when somebody reads fds past libc.
enum class Copies : std::uint8_t { no, for_now, yes };
extern constinit std::atomic<Copies> g_serves_copies;
inline bool serves_copies() { return g_serves_copies.load(std::memory_order_relaxed) != Copies::no; }

// The origin of each prefix; null before start().
extern constinit std::atomic<const cache::Origins*> g_origins;
inline const cache::Origins* origins() { return g_origins.load(std::memory_order_acquire); }
// The names that the kernel does not have; null: it has all, as nearly always.
extern constinit std::atomic<const cache::AllNames*> g_names;
inline const cache::AllNames* names() { return g_names.load(std::memory_order_acquire); }

extern constinit const base::Config* g_config;
inline const base::Config& config() { return *g_config; }
// Its first process.
const base::ProcessId& job();
bool has_list();

// Around vfork and clones that share memory but not fds.
void expect_shared_memory_child();
// Before a child is made by fork, vfork, spawn or a raw clone: what it would inherit becomes real.
void prepare_child();
// The same before a vfork. Its child runs on our memory and cannot attach: it tells of its changes by our cache.
void prepare_vforked_child();
// After a fork, in the parent: other threads may have opened files for writing since the preparation.
void end_fork();
// The same before a clone with these flags.
void prepare_clone(std::uint64_t flags);
// In the child of a fork.
void become_child();

// The same three around libc's fork, for pthread_atfork. A library that has registered its handlers before us runs its `prepare`
// after ours, and its `child` before ours. So the thread notes that it forks: what it opens meanwhile is the kernel's, and a
// child that shows itself before our handler is one of libc's.
enum class Forking : std::uint8_t { no, begun, is_child };
extern constinit thread_local Forking t_forking [[gnu::tls_model("initial-exec")]];
inline bool is_forking() { return t_forking != Forking::no; }
void before_libc_fork();
void after_libc_fork();
void in_libc_fork_child();

// The program closes its stderr stream, as coreutils (timeout, nice ...) do before they end: the last moment to report there.
void stderr_ends();
// Reports if this process speaks for the job, and lets go of the cache. Once; at exit or _exit.
void leave();

// A periodic report, if one is due, and the lines of threads that have no stderr.
void report_if_due_slow(cache::FileCache& cache);
inline void report_if_due(cache::FileCache& cache) {
  if (base::has_kept_lines() || config().stats_interval != 0) [[unlikely]]
    report_if_due_slow(cache);
}

}  // namespace cube::shim::process
