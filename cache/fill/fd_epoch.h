// An fd of the program, with a count of how often the fd was closed or replaced. A fetch that reads
// through the program's fd first loads the count, and then checks that the fd refers to the right
// file. The bytes are valid only if the count is unchanged after the read. Otherwise another thread
// may have closed the fd and opened another file under its number. The closing of other fds of the
// same file does not change the count. Thread-safe, lock-free and async-signal-safe. Fds whose
// numbers differ by a multiple of k_counts share a count, so a valid read may be discarded.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::cache {

class FdEpoch {
 public:
  explicit FdEpoch(int fd) : fd_(fd), count_(count_of(fd).load(std::memory_order_seq_cst)) {}
  int fd() const { return fd_; }
  // Whether the fd has referred to the same file since this object was constructed. The seq_cst
  // load pairs with the increment in file_leaves().
  bool goes_on() const { return count_of(fd_).load(std::memory_order_seq_cst) == count_; }
  // Call it before an fd is closed or replaced by another file.
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
