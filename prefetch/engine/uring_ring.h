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
  // FUSE and NFS operations wait in kernel workers, of which there are few unless asked for.
  void set_workers(unsigned n);

  // Never null: what is queued is submitted first where the queue is full.
  io_uring_sqe* next();
  // Submits, and waits for a completion no longer than this.
  void submit_and_wait(std::uint64_t at_most_ns);
  void submit() { io_uring_submit(&ring_); }
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
