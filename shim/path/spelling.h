// Detects a program that opens files of a prefix under another path, for example through a symbolic
// link. Such a program is not served, because prefixes are compared with the text of a path. Until
// it has the cache, each process compares the real paths of files that it opens elsewhere; the
// first one that finds such a file notes its path for the report of the job. No server is asked:
// prefixes that may be on a server are looked up only in the kernel's caches, and only after an
// open of a file that may be below one. Cost: a process without the cache pays a readlink for each
// of its first opens, and for one in 64 later on. A process with the cache pays a load. Thread-safe
// and async-signal-safe, except start.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "cache/base/settings/config.h"
#include "shim/path/startup_directory.h"

namespace cube::shim::spelling {

// The value of g_opens from which on nothing is compared.
inline constexpr std::uint32_t k_done = ~0U;
// Counts the opens outside the prefixes in a process without a cache. Threads may overwrite each
// other's counts.
extern constinit std::atomic<std::uint32_t> g_opens;

// Called at the start of a process. The first process of a job passes the real paths of the
// prefixes in `looks`, as far as this machine knows them. The other processes pass nothing, and
// compare with the prefixes as they are spelled.
void start(const base::Config& config, std::vector<startup_directory::DirectoryLook> looks);
void look(int fd, const char* path);

// Called after an open for reading that no prefix covers. `path` is null if a stream was reopened
// without a path.
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
