// A ring that is set up for fetching, or the reason why there is none. Thread safety: the thread
// that made it.
#pragma once

#include <liburing.h>

#include <string>

namespace cube::prefetch {

class Ring {
 public:
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring();

  // False: `why` says what is missing.
  bool set_up(unsigned entries, std::string& why);
  // Sets the number of kernel workers. FUSE and NFS operations wait in them, and there are few by
  // default.
  void set_workers(unsigned n);

  // Never null: if the queue is full, its entries are submitted first.
  io_uring_sqe* next();
  // Submits, and waits at most this long for a completion.
  void submit_and_wait(std::uint64_t at_most_ns);
  // The next completion, or null.
  io_uring_cqe* completed();
  void seen(io_uring_cqe* cqe) { io_uring_cqe_seen(&ring_, cqe); }

 private:
  bool map(const io_uring_params& parameters);
  bool has_operations(std::string& why);
  io_uring ring_{};
  bool is_set_up_ = false;
};

}  // namespace cube::prefetch
