// How others see that a process lives: a lock on one byte of the region's file for each process
// slot, held by an open file that only a mapping of the process keeps. It goes with the process's
// memory: by death however it comes, by exec, by a call of ours; not with a thread, an fd or a
// fork. It holds across pid namespaces and needs no /proc. Invariant: whoever cannot look (no fd
// left, no name left, a sandbox) takes a process for alive. Thread safety: a plain value each.
// Async-signal-safe.
#pragma once

#include <cstdint>

#include "cache/base/memory/mapping.h"
#include "cache/base/unique_fd.h"

namespace cube::cache {

// Takes the lock.
class LifeLock {
 public:
  // `fd`: a writable one of the region's file.
  static LifeLock open(base::UniqueFd fd);
  LifeLock(LifeLock&& other) noexcept = default;
  LifeLock& operator=(LifeLock&&) = delete;
  ~LifeLock();

  // EAGAIN: another process has it.
  base::Result<void> take(std::uint32_t slot);
  // The lock lives as long as this mapping, which a forked child does not have.
  base::Result<base::Mapping> keep();

 private:
  explicit LifeLock(base::UniqueFd fd) : fd_(std::move(fd)) {}
  base::UniqueFd fd_;
};

// Tests locks, with one open for any number of slots.
class LifeProbe {
 public:
  // `fd`: any of the region's file; without one, every slot counts as held.
  explicit LifeProbe(base::Result<base::UniqueFd> fd);
  // Is one of these slots held?
  bool is_held(std::uint32_t slot, std::uint32_t count = 1) const;

 private:
  base::UniqueFd fd_;
};

// In a forked child, of what its parent keeps.
void drop_life_after_fork(base::Mapping& life);
// In a forked child: another thread of the parent may have been about to take the lock, by an fd
// that the child has, too.
void close_life_lock_after_fork();

}  // namespace cube::cache
