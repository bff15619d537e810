// An fd of the program, and how often files have left that fd. A fetch that reads through the
// program's fd takes the count first, then checks that the fd belongs to its file, and counts only
// if the fd is still the file's after the read: in between, another thread may close the fd and
// open another file there. A close of another fd, of the same file too, does not matter. Thread
// safety: all of it, lock-free; async-signal-safe. Fds that lie k_counts apart share a count, which
// only makes a read count less often.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::cache {

class FdEpoch {
 public:
  explicit FdEpoch(int fd) : fd_(fd), count_(count_of(fd).load(std::memory_order_seq_cst)) {}
  int fd() const { return fd_; }
  // Whether no file has left the fd since this was made. The seq_cst orders of the counts pair with
  // each other, around the program's own changes of its fd table.
  bool goes_on() const { return count_of(fd_).load(std::memory_order_seq_cst) == count_; }
  // Called before an fd is closed or becomes another file's.
  static void file_leaves(int fd) { count_of(fd).fetch_add(1, std::memory_order_seq_cst); }

 private:
  static constexpr unsigned k_counts = 1024;
  inline static constinit std::atomic<std::uint32_t> g_counts[k_counts]{};
  static std::atomic<std::uint32_t>& count_of(int fd) {
    return g_counts[static_cast<unsigned>(fd) % k_counts];
  }

  int fd_;
  std::uint32_t count_;
};

}  // namespace cube::cache
