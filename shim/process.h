// This process as the shim sees it: is it switched on, is the caller the process whose memory this is, which cache.
//
// A vforked child runs on our memory with an fd table of its own. Whoever changes what the shim knows of fds asks
// owns_table() first. vfork leaves a mark in the thread (vfork.S), clone without CLONE_FILES leaves one in the process,
// and after a mark getpid decides; a fork that passed us by is told by a page that the kernel wipes in the child. So a
// hit pays for two loads, not for a system call.
// Thread safety: all of it. attached_cache, owns_table and is_active are async-signal-safe.
#pragma once

#include "cache/file_cache.h"

namespace cube::shim::process {

// From the constructor, once.
void start(const base::Config& config, const base::ProcessId& job, bool leader);

extern constinit std::atomic<bool> g_active;
extern constinit thread_local bool t_vforked [[gnu::tls_model("initial-exec")]];
extern constinit std::atomic<bool> g_memory_is_shared;
extern constinit std::atomic<const std::uint32_t*> g_fork_mark;
bool owns_table_slow();

// Prefixes are set, the mode is not off, and nothing has happened that changes what a path means (setuid, chroot ...).
inline bool is_active() { return g_active.load(std::memory_order_relaxed); }
void disable(const char* why);

inline bool owns_table() {
  const std::uint32_t* const mark = g_fork_mark.load(std::memory_order_relaxed);
  if (t_vforked || g_memory_is_shared.load(std::memory_order_relaxed) || (mark != nullptr && *mark == 0)) [[unlikely]] {
    return owns_table_slow();
  }
  return true;
}

const base::Config& config();
// Attached at the first call; nullptr where that failed (said once), is under way in another thread, or is over.
cache::FileCache* cache();
// The same, but makes no region where there is none.
cache::FileCache* existing_cache();
cache::FileCache* attached_cache();

// Around vfork and clones that share memory but not fds.
void expect_vforked_child();
void expect_shared_memory_child();
// Before a child is made by fork, vfork, spawn or a raw clone: what it would inherit becomes real.
void prepare_child();
// In the child of a fork.
void become_child();

// Reports if this is the job's first process, and lets go of the cache. Once; at exit or _exit.
void leave();

// A periodic report, if one is due.
void report_if_due(cache::FileCache& cache);

}  // namespace cube::shim::process
