// A table with one row for each fd. The RowKind in the row says what the fd refers to. `none` means
// a file that only the kernel knows. `directory` means a directory that may lead to a prefix.
// `mount_stream` means a directory of a mount whose listing is in memory. A row is one 64-bit word:
//   kind:3 | close-on-exec:1 | generation of the OpenFile:28 | index of the OpenFile:32
// Invariants: A row holds one reference on its OpenFile. A row is set only after the kernel has
// given us the fd, and cleared before the fd is closed. While a row is BUSY, one thread is changing
// the file of the fd, and all other threads wait. Thread safety: lock-free except for BUSY;
// async-signal-safe. Only the process that owns the table changes it (process.h).
#pragma once

#include <sched.h>

#include <optional>

#include "cache/base/lane.h"
#include "shim/fd/open_file.h"
#include "shim/process/process.h"

namespace cube::shim {

enum class RowKind : std::uint8_t {
  none = 0,
  served = 1,
  busy = 2,
  writer = 3,
  directory = 4,
  unmounted_directory = 5,
  large = 6,
  mount_stream = 7
};

// True if the kernel also has the file open under an fd of this kind, and so can dup the fd.
inline bool is_of_kernel(RowKind kind) {
  return kind == RowKind::writer || kind == RowKind::unmounted_directory || kind == RowKind::large;
}

class FdTable {
 public:
  static constexpr int k_capacity = 1 << 16;  // higher fds are left to the kernel

  // Returns the served file of the fd, or an empty reference if there is none. Waits while the row
  // is BUSY.
  [[gnu::always_inline]] OpenFileRef acquire(int fd) { return acquire_kind(fd, RowKind::served); }
  // Like acquire(), but for a file that is being written.
  OpenFileRef acquire_writer(int fd) { return acquire_kind(fd, RowKind::writer); }
  // Like acquire(), but for a row of this kind, which must be a kind with an OpenFile.
  [[gnu::always_inline]] OpenFileRef acquire_kind(int fd, RowKind kind) {
    if (static_cast<unsigned>(fd) >= k_capacity) return {};
    while (true) {
      const std::uint64_t row = settled_row(fd);
      if (row == 0) [[likely]]
        return {};
      // In a vforked child, the same fd may refer to another file.
      if (kind_of(row) != kind || !process::owns_table()) return {};
      OpenFile* const file = open_files::at(static_cast<std::uint32_t>(row));
      if (!open_files::try_acquire(file)) continue;
      // The object may have been reused since the load. In that case the row has changed, because a
      // row holds the generation of its object.
      if (row_of(fd).load(std::memory_order_acquire) == row) [[likely]]
        return OpenFileRef::adopt(file);
      OpenFileRef::adopt(file).reset();
    }
  }

  // Waits while the row is BUSY, because another thread may be changing the kernel's file under the
  // fd.
  RowKind kind(int fd) const { return is_within(fd) ? kind_of(settled_row(fd)) : RowKind::none; }
  bool is_within(int fd) const { return static_cast<unsigned>(fd) < k_capacity; }
  // Returns nothing if the fd is not served. Waits while the row is BUSY.
  std::optional<bool> close_on_exec(int fd) const {
    const std::uint64_t row = is_within(fd) ? settled_row(fd) : 0;
    if (kind_of(row) != RowKind::served) return {};
    return (row & k_close_on_exec) != 0;
  }
  // Returns false if the fd is not served. Waits while the row is BUSY.
  bool set_close_on_exec(int fd, bool on);

  // The kernel must have given us the fd, and the fd must have no row.
  void set(int fd, RowKind kind, OpenFileRef file, bool close_on_exec);
  void set_directory(int fd);
  // Empties the row, and returns the reference that it held. Waits while the row is BUSY.
  OpenFileRef take(int fd);
  // Empties the row, if it is not empty, because the fd now refers to something else.
  void forget(int fd) {
    if (is_within(fd) && row_of(fd).load(std::memory_order_relaxed) != 0) [[unlikely]]
      take(fd);
  }

  // Call this in a forked child. Empties the rows that other threads of the parent were changing.
  // If the fd of such a row is a placeholder, closes it. Also notes that no thread is replacing the
  // fds of any file (ReplacesFds).
  void end_busy_rows();

  // Waits until no other thread holds the row, makes it BUSY, and returns its previous value.
  std::uint64_t lock(int fd);
  // If the row still refers to `file` and is of this kind, makes it BUSY, sets `was` to its
  // previous value and returns true. Does not wait.
  bool lock_if(int fd, const OpenFile* file, std::uint64_t& was, RowKind kind = RowKind::served);
  void unlock(int fd, std::uint64_t row) { row_of(fd).store(row, std::memory_order_release); }
  static OpenFileRef reference_in(std::uint64_t row);

  // A bound: no fd at or above it has ever had a row with an OpenFile.
  int end() const { return end_.load(std::memory_order_acquire); }
  // True if the row of any fd is BUSY or refers to a served file.
  bool serves_any() const;

  static constexpr std::uint64_t k_close_on_exec = 1ULL << 60;
  static RowKind kind_of(std::uint64_t row) { return static_cast<RowKind>(row >> 61); }

 private:
  void raise_end(int fd);

  [[gnu::always_inline]] std::uint64_t settled_row(int fd) const {
    while (true) {
      const std::uint64_t row = row_of(fd).load(std::memory_order_acquire);
      if (kind_of(row) != RowKind::busy) [[likely]]
        return row;
      // In the child of a fork that bypassed libc, no thread will complete the change. In such a
      // child, owns_table() empties the row.
      process::owns_table();
      sched_yield();
    }
  }

  // The rows of neighboring fds lie on different cache lines, because threads that open files at
  // the same time often use neighboring fds.
  static constexpr int k_lines =
      k_capacity / static_cast<int>(base::k_cache_line / sizeof(std::uint64_t));
  struct alignas(base::k_cache_line) Line {
    std::atomic<std::uint64_t> rows[k_capacity / k_lines];
  };
  std::atomic<std::uint64_t>& row_of(int fd) {
    const auto n = static_cast<unsigned>(fd);
    return lines_[n % k_lines].rows[n / k_lines];
  }
  const std::atomic<std::uint64_t>& row_of(int fd) const {
    return const_cast<FdTable*>(this)->row_of(fd);
  }

  Line lines_[k_lines]{};
  std::atomic<int> end_{0};
};

extern constinit FdTable g_fds;

}  // namespace cube::shim
