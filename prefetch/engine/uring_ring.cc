#include "prefetch/engine/uring_ring.h"

#include <cerrno>
#include <cstring>

namespace cube::prefetch {

Ring::~Ring() {
  if (is_set_up_) io_uring_queue_exit(&ring_);
}

bool Ring::set_up(unsigned entries, std::string& why) {
  // From the newest kernel's best to what 5.11 has.
  static constexpr unsigned k_flags[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0};
  int error = -EINVAL;
  for (const unsigned flags : k_flags) {
    io_uring_params parameters{};
    parameters.flags = flags | IORING_SETUP_CLAMP;
    error = io_uring_queue_init_params(entries, &ring_, &parameters);
    if (error != -EINVAL) break;
  }
  if (error < 0) {
    why = std::string("io_uring_setup: ") + std::strerror(-error);
    return false;
  }
  is_set_up_ = true;
  io_uring_ring_dontfork(&ring_);
  return has_operations(why);
}

bool Ring::has_operations(std::string& why) {
  constexpr unsigned k_features = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
  if ((ring_.features & k_features) != k_features) {
    why = "io_uring: the kernel is older than 5.11";
    return false;
  }
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
  bool all = probe != nullptr;
  for (const int operation : {IORING_OP_OPENAT2, IORING_OP_STATX, IORING_OP_READV, IORING_OP_CLOSE, IORING_OP_ASYNC_CANCEL}) {
    all = all && io_uring_opcode_supported(probe, operation) != 0;
  }
  io_uring_free_probe(probe);
  if (!all) why = "io_uring: an operation is missing";
  return all;
}

void Ring::set_workers(unsigned n) {
  unsigned bounded_and_not[2] = {n, n};
  io_uring_register_iowq_max_workers(&ring_, bounded_and_not);
}

io_uring_sqe* Ring::next() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {
    io_uring_submit(&ring_);
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

void Ring::submit_and_wait(std::uint64_t at_most_ns) {
  io_uring_cqe* cqe = nullptr;
  __kernel_timespec limit{static_cast<long long>(at_most_ns / 1'000'000'000ULL),
                          static_cast<long long>(at_most_ns % 1'000'000'000ULL)};
  io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &limit, nullptr);
}

io_uring_cqe* Ring::completed() {
  io_uring_cqe* cqe = nullptr;
  return io_uring_peek_cqe(&ring_, &cqe) == 0 ? cqe : nullptr;
}

}  // namespace cube::prefetch
