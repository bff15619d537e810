// Keeps the library from dropping POSIX locks of the program (fcntl, lockf). When a process closes
// any fd of a file, the kernel drops all POSIX locks of the process on that file. So the library
// uses this class to close the fds of origin files that it has in the program's fd table. The class
// leaves an fd open while the process has a lock on the fd's file. The kernel is asked about locks
// only after the process has locked a file of the device. If a FUSE server keeps the locks, the
// kernel does not know all holders, so this class notes the locks that the process takes. Other fds
// need no such care: closing an fd with O_PATH drops no lock, and the library's own threads have
// their own fd tables. Thread-safe, lock-free and async-signal-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"

namespace cube::cache {

// How many fds are noted: fds that PosixLocks::close() has left open, and fds through which the
// program has taken a lock that a server keeps. The count is incremented before such an fd is
// noted, and decremented after it is forgotten.
extern constinit std::atomic<std::uint32_t> g_noted_fds;

class PosixLocks {
 public:
  // Makes the program's call that takes a lock through the fd, and returns its result. During the
  // call, another thread may close an fd of the library and thereby drop the new lock. In that case
  // the call is repeated, which has no effect on a lock that still exists.
  template <typename Call>
  static int take(int fd, Call&& call) {
    Closes closes(fd);
    int result = 0;
    do {
      closes.look();
      result = call();
      // From now on, each close finds the lock. The loop notices an earlier close.
      if (result == 0) closes.note_taken(fd);
    } while (result == 0 && closes.have_gone_on());
    return result;
  }

  // Notes locks that have survived an exec. Call it before the first close().
  static void note_inherited();
  // Whether the process may hold a lock on a file of the device, or on this file.
  static bool may_hold_on_device(const FileStat& stat);
  static bool may_hold(int fd);

  static void close(int fd);
  // False: no fd is noted, so there is nothing to forget or to close.
  static bool is_any_noted() { return g_noted_fds.load(std::memory_order_relaxed) != 0; }
  // These functions handle fds that close() has left open. A mark identifies the file of such fds.
  // kept_mark() returns the mark of this fd's file. 0: close() has left open no fd of that file.
  // Call close_kept() or close_all_kept() when a lock has ended. These functions close the fds of
  // one mark, or of all marks, but leave an fd open if its file still has a lock.
  static std::uint32_t kept_mark(int fd) { return is_any_noted() ? kept_mark_slow(fd) : 0; }
  static void close_kept(std::uint32_t mark) {
    if (mark != 0) [[unlikely]]
      close_kept_slow(mark);
  }
  static void close_all_kept() {
    if (is_any_noted()) [[unlikely]]
      close_all_kept_slow();
  }
  // Call it before the program closes these fds.
  static void forget(unsigned first, unsigned last) {
    if (is_any_noted()) [[unlikely]]
      forget_slow(first, last);
  }
  // Call it when the program is about to unlock the fd's whole file, to close the fd, or to replace
  // the fd (dup2). Each of these actions ends all locks of the program on the file. Returns
  // kept_mark().
  static std::uint32_t forget_and_mark(int fd) {
    return is_any_noted() ? forget_and_mark_slow(fd) : 0;
  }
  // Call it before an exec. The fds that close() has left open then survive the exec, like the
  // locks.
  static void keep_over_exec();
  // Call it in a child of fork, which does not have the parent's other threads and locks. Closes
  // the fds that close() has left open.
  static void become_child();

 private:
  [[gnu::cold]] static std::uint32_t kept_mark_slow(int fd);
  [[gnu::cold]] static void close_kept_slow(std::uint32_t mark);
  [[gnu::cold]] static void close_all_kept_slow();
  [[gnu::cold]] static void forget_slow(unsigned first, unsigned last);
  [[gnu::cold]] static std::uint32_t forget_and_mark_slow(int fd);

  // Watches the closes of all files that share a counter with the fd's file.
  class Closes {
   public:
    explicit Closes(int fd);
    void look();
    // Whether a close was in progress at look(), or has ended since then. If so, also yields the
    // processor.
    bool have_gone_on();
    // Called after the program has taken a lock through this fd. If /proc shows the lock, notes
    // that /proc shows the locks of this device. Otherwise notes the lock.
    void note_taken(int fd) const;

   private:
    bool may_wait();
    std::atomic<std::uint64_t>* counter_;
    std::uint64_t before_ = 0, began_ns_ = 0;
    std::optional<FileStat> stat_;
  };
};

// Owns an fd of an origin's file in the program's fd table.
using OriginFd = base::OwnedFd<PosixLocks>;

}  // namespace cube::cache
