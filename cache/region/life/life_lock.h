// A lock by which other processes see that a process lives: one byte of the region's file for each
// process slot, locked through an open file that only a mapping of the process keeps. The lock ends
// with the process's memory: by any kind of death, by exec, or when we unmap it; it does not end
// with a thread, an fd or a fork. It works across pid namespaces and needs no /proc. Invariant: a
// process that cannot test a lock (no fd left, no name left, a sandbox) takes its owner for alive.
// Thread safety: plain values. Async-signal-safe.
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
  // The lock lives as long as the returned mapping, which a forked child does not have.
  base::Result<base::Mapping> keep();

 private:
  explicit LifeLock(base::UniqueFd fd) : fd_(std::move(fd)) {}
  base::UniqueFd fd_;
};

// Tests locks. It opens the file once for any number of slots.
class LifeProbe {
 public:
  // `fd`: any fd of the region's file; without one, every slot counts as held.
  explicit LifeProbe(base::Result<base::UniqueFd> fd);
  // True if one of these slots is held.
  bool is_held(std::uint32_t slot, std::uint32_t count = 1) const;

 private:
  base::UniqueFd fd_;
};

// For a forked child: drops the mapping that its parent keeps.
void drop_life_after_fork(base::Mapping& life);
// For a forked child: closes its copy of the fd through which another thread of the parent may have
// been taking the lock.
void close_life_lock_after_fork();

}  // namespace cube::cache
