// A lock that shows other processes that its owner is alive. Each process slot has one byte of the
// region's file. A process locks the byte of its slot through an open file that only a memory
// mapping of the process keeps open. The lock ends when the mapping ends: when the process dies in
// any way, at an exec, or when the library unmaps the mapping. The end of a thread, the close of an
// fd, and a fork do not end the lock. The lock works across pid namespaces and does not need /proc.
// Invariant: a lock that cannot be tested counts as held (because no fd is left, the region has
// lost its name, or a sandbox refuses the test). Thread safety: plain values. Async-signal-safe.
#pragma once

#include <cstdint>

#include "cache/base/memory/mapping.h"
#include "cache/base/unique_fd.h"

namespace cube::cache {

// Takes the lock.
class LifeLock {
 public:
  // `fd`: a writable fd of the region's file.
  static LifeLock open(base::UniqueFd fd);
  LifeLock(LifeLock&& other) noexcept = default;
  LifeLock& operator=(LifeLock&&) = delete;
  ~LifeLock();

  // EAGAIN: another process has the lock.
  base::Result<void> take(std::uint32_t slot);
  // The lock lasts as long as the returned mapping. A forked child does not have that mapping.
  base::Result<base::Mapping> keep();

 private:
  explicit LifeLock(base::UniqueFd fd) : fd_(std::move(fd)) {}
  base::UniqueFd fd_;
};

// Tests the locks of any number of slots, with one open file.
class LifeProbe {
 public:
  // `fd`: any fd of the region's file. Without an fd, every slot counts as held.
  explicit LifeProbe(base::Result<base::UniqueFd> fd);
  // True if one of these slots is held.
  bool is_held(std::uint32_t slot, std::uint32_t count = 1) const;

 private:
  base::UniqueFd fd_;
};

// For a forked child: drops the mapping, which the parent keeps.
void drop_life_after_fork(base::Mapping& life);
// For a forked child. If another thread of the parent was taking the lock during the fork, closes
// the child's copy of that thread's fd.
void close_life_lock_after_fork();

}  // namespace cube::cache
