// A ring that is set up for fetching. Thread safety: only the thread that made the ring.
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

  // Returns false on failure; `why` then says what is missing.
  bool set_up(unsigned entries, std::string& why);
  // Sets the number of kernel workers, in which FUSE and NFS operations wait. The default number is
  // low.
  void set_workers(unsigned n);

  // Returns a free entry, never null: if the queue is full, its entries are submitted first.
  io_uring_sqe* next();
  // Submits the queued entries, and waits for a completion, but no longer than `at_most_ns`.
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
