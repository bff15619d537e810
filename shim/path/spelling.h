// A program that opens files of a prefix by another name (through a symbolic link, say) is not
// served, because paths are compared as they are spelled. Each process compares the real paths of
// what it opens elsewhere until it has the cache; the first one that finds such a file notes its
// name for the report of the job. No server is asked: the prefixes that one may hold are looked up
// in what the kernel knows, and only when a file was opened that may come from one. Cost: a process
// without the cache pays a readlink for each of its first opens, and for one in 64 later on. One
// with the cache pays a load. Thread safety: all of it but start; async-signal-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "cache/base/settings/config.h"
#include "shim/path/near_look.h"

namespace cube::shim::spelling {

// Nothing is looked at any more.
inline constexpr std::uint32_t k_done = ~0U;
// Opens outside the prefixes, of a process that has no cache. Threads may overwrite each other's
// counts.
extern constinit std::atomic<std::uint32_t> g_opens;

// At the start of a process. The first process of a job has looked where the prefixes really lie,
// if this machine knows; the others (no `looks`) take them as they are spelled.
void start(const base::Config& config, std::vector<near_look::DirectoryLook> looks);
void look(int fd, const char* path);

// After an open for reading that no prefix covers. `path` is null where a stream was opened anew
// without a name.
inline void opened_outside(int fd, const char* path) {
  constexpr std::uint32_t k_all = 1024, k_one_in = 64;
  const std::uint32_t n = g_opens.load(std::memory_order_relaxed);
  if (n == k_done || path == nullptr) return;
  g_opens.store(n + 1, std::memory_order_relaxed);
  if (fd >= 0 && (n < k_all || n % k_one_in == 0)) look(fd, path);
}

// Has this process opened so many files that one would expect some below a prefix?
inline bool has_opened_many() {
  const std::uint32_t n = g_opens.load(std::memory_order_relaxed);
  return n >= 32 && n != k_done;
}

}  // namespace cube::shim::spelling
