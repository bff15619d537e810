#include "prefetch/engine/uring_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>

#include "cache/base/error_text.h"
#include "cache/base/memory/own_place.h"
#include "cache/base/sys.h"

namespace cube::prefetch {

namespace {

namespace sys = base::sys;

template <typename T>
T* at(void* memory, unsigned offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(memory) + offset);
}

// Moves a mapping of the ring to the library's own place. The kernel ignores the requested address
// of such a mapping, and might have put it into a range that the program has just unmapped.
void* moved_to_own_place(long from, std::size_t bytes) {
  const long room = sys::mmap(base::own_place(bytes), bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto length = static_cast<long>(bytes);
  const long moved = sys::failed(room) ? room
                                       : sys::raw(SYS_mremap, from, length, length,
                                                  MREMAP_MAYMOVE | MREMAP_FIXED, room);
  if (sys::failed(moved) && !sys::failed(room)) sys::munmap(reinterpret_cast<void*>(room), bytes);
  return reinterpret_cast<void*>(sys::failed(moved) ? from : moved);
}

}  // namespace

Ring::~Ring() {
  if (ring_.sq.sqes != nullptr)
    sys::munmap(ring_.sq.sqes, ring_.sq.ring_entries * sizeof(io_uring_sqe));
  if (ring_.sq.ring_ptr != nullptr) sys::munmap(ring_.sq.ring_ptr, ring_.sq.ring_sz);
  if (is_set_up_) sys::close(ring_.ring_fd);
}

// Does the same as io_uring_queue_init_params, which the library itself interposes
// (shim/libc/io_uring.cc).
bool Ring::set_up(unsigned entries, std::string& why) {
  // Sets of flags, from the best set, which needs the newest kernel, to the set that Linux 5.11
  // supports.
  static constexpr unsigned k_flags[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
                                         IORING_SETUP_COOP_TASKRUN, 0};
  io_uring_params parameters{};
  long fd = -EINVAL;
  for (const unsigned flags : k_flags) {
    parameters = {};
    parameters.flags = flags | IORING_SETUP_CLAMP;
    fd = sys::raw(SYS_io_uring_setup, entries, sys::arg(&parameters));
    if (fd != -EINVAL) break;
  }
  if (fd >= 0) {
    is_set_up_ = true;
    ring_.ring_fd = ring_.enter_ring_fd = static_cast<int>(fd);
    ring_.flags = parameters.flags;
    ring_.features = parameters.features;
    if (map(parameters)) return has_operations(why);
    fd = -ENOMEM;
  }
  why = std::string("io_uring_setup: ") + base::text_of_error(static_cast<int>(-fd));
  return false;
}

// Maps both queues in one mapping, and the entries in a second. A single mapping of both queues
// needs Linux 5.4, which has_operations() implies. No child inherits these mappings.
bool Ring::map(const io_uring_params& parameters) {
  const auto map = [&](std::size_t bytes, std::int64_t offset) -> void* {
    const long to = sys::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                              ring_.ring_fd, offset);
    if (sys::failed(to)) return nullptr;
    sys::madvise(reinterpret_cast<void*>(to), bytes, MADV_DONTFORK);
    return moved_to_own_place(to, bytes);
  };
  const auto& of_sq = parameters.sq_off;
  const auto& of_cq = parameters.cq_off;
  auto& sq = ring_.sq;
  auto& cq = ring_.cq;
  sq.ring_entries = parameters.sq_entries;
  cq.ring_entries = parameters.cq_entries;
  sq.ring_sz = std::max<std::size_t>(of_sq.array + sq.ring_entries * sizeof(unsigned),
                                     of_cq.cqes + cq.ring_entries * sizeof(io_uring_cqe));
  sq.ring_ptr = map(sq.ring_sz, IORING_OFF_SQ_RING);
  if (sq.ring_ptr == nullptr) return false;
  sq.sqes =
      static_cast<io_uring_sqe*>(map(sq.ring_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
  if (sq.sqes == nullptr) return false;
  sq.khead = at<unsigned>(sq.ring_ptr, of_sq.head);
  sq.ktail = at<unsigned>(sq.ring_ptr, of_sq.tail);
  sq.kring_mask = at<unsigned>(sq.ring_ptr, of_sq.ring_mask);
  sq.kring_entries = at<unsigned>(sq.ring_ptr, of_sq.ring_entries);
  sq.kflags = at<unsigned>(sq.ring_ptr, of_sq.flags);
  sq.kdropped = at<unsigned>(sq.ring_ptr, of_sq.dropped);
  sq.array = at<unsigned>(sq.ring_ptr, of_sq.array);
  sq.ring_mask = sq.ring_entries - 1;
  for (unsigned i = 0; i < sq.ring_entries; ++i) sq.array[i] = i;
  cq.ring_ptr = sq.ring_ptr;
  cq.ring_sz = sq.ring_sz;
  cq.khead = at<unsigned>(cq.ring_ptr, of_cq.head);
  cq.ktail = at<unsigned>(cq.ring_ptr, of_cq.tail);
  cq.kring_mask = at<unsigned>(cq.ring_ptr, of_cq.ring_mask);
  cq.kring_entries = at<unsigned>(cq.ring_ptr, of_cq.ring_entries);
  cq.kflags = of_cq.flags != 0 ? at<unsigned>(cq.ring_ptr, of_cq.flags) : nullptr;
  cq.koverflow = at<unsigned>(cq.ring_ptr, of_cq.overflow);
  cq.cqes = at<io_uring_cqe>(cq.ring_ptr, of_cq.cqes);
  cq.ring_mask = cq.ring_entries - 1;
  return true;
}

bool Ring::has_operations(std::string& why) {
  constexpr unsigned k_features = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
  if ((ring_.features & k_features) != k_features) {
    why = "io_uring: the kernel is older than 5.11";
    return false;
  }
  // io_uring_get_probe_ring would call the host's malloc.
  alignas(io_uring_probe)
      std::byte room[sizeof(io_uring_probe) + IORING_OP_LAST * sizeof(io_uring_probe_op)] = {};
  auto* const probe = new (room) io_uring_probe;
  bool all = io_uring_register_probe(&ring_, probe, IORING_OP_LAST) == 0;
  for (const int operation : {IORING_OP_OPENAT2, IORING_OP_STATX, IORING_OP_READV, IORING_OP_CLOSE,
                              IORING_OP_ASYNC_CANCEL}) {
    all = all && io_uring_opcode_supported(probe, operation) != 0;
  }
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
