// Detects a program that opens files of a prefix by another path, for example through a symbolic
// link. Such a program is not served, because prefixes are compared with the text of a path. Until
// a process attaches to the cache, it compares the real paths of the files that it opens elsewhere
// with the prefixes. The first process that finds such a file notes its path for the report of the
// job. No server is asked: a prefix that may be on a server is looked up only in the kernel's
// caches, after an open of a file that may be below the prefix. In a process without the cache,
// each of the first opens costs a readlink. Later, every 64th open costs a readlink. In a process
// with the cache, each open costs a load. Thread-safe. Async-signal-safe, except start().
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "cache/base/settings/config.h"
#include "shim/path/startup_directory.h"

namespace cube::shim::spelling {

// g_opens has this value when no more paths are compared.
inline constexpr std::uint32_t k_done = ~0U;
// Counts the opens outside the prefixes in a process without a cache. Threads may overwrite each
// other's counts.
extern constinit std::atomic<std::uint32_t> g_opens;

// Call this at the start of a process. In the first process of a job, `looks` holds the real paths
// of the prefixes, if this machine knows them. In all other processes, `looks` is empty, and paths
// are compared with the spelling of the prefixes.
void start(const base::Config& config, std::vector<startup_directory::DirectoryLook> looks);
void look(int fd, const char* path);

// Call this after an open for reading whose path no prefix covers. `path` is null if a stream was
// reopened without a path.
inline void opened_outside(int fd, const char* path) {
  constexpr std::uint32_t k_all = 1024, k_one_in = 64;
  const std::uint32_t n = g_opens.load(std::memory_order_relaxed);
  if (n == k_done || path == nullptr) return;
  g_opens.store(n + 1, std::memory_order_relaxed);
  if (fd >= 0 && (n < k_all || n % k_one_in == 0)) look(fd, path);
}

// True if this process has opened so many files that some of them should be below a prefix.
inline bool has_opened_many() {
  const std::uint32_t n = g_opens.load(std::memory_order_relaxed);
  return n >= 32 && n != k_done;
}

}  // namespace cube::shim::spelling
