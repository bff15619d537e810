// A lock by which other processes see that a process lives. Each process slot has one byte of the
// region's file. The process locks its byte through an open file that only a mapping of the process
// keeps open. The lock ends with the mapping: at any kind of death, at an exec, or when the library
// unmaps it. The end of a thread, the close of an fd, or a fork does not end the lock. The lock
// works across pid namespaces and does not need /proc. Invariant: if a process cannot test a lock
// (no fd is left, the name is gone, a sandbox), it considers the lock's owner alive. Thread safety:
// plain values. Async-signal-safe.
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

// Tests locks. It uses one open file for any number of slots.
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
// For a forked child. Another thread of the parent may have been taking the lock through an fd;
// this closes the child's copy of that fd.
void close_life_lock_after_fork();

}  // namespace cube::cache
