#include "shim/calls/map/mapped_copy.h"

#include <atomic>
#include <cerrno>

#include "cache/base/memory/memory_limits.h"
#include "shim/fd/kernel_file.h"
#include "shim/fd/materialize.h"

namespace cube::shim::mapped_copy {
namespace {

namespace sys = base::sys;

constinit std::atomic<std::uint64_t> g_bytes{0};  // the cost() of all copies of this process
// The machine had memory for copies of this total size when it was last checked. Up to this size
// there is no further check, because a check takes longer than a copy.
constinit std::atomic<std::uint64_t> g_looked_up_to{0};
constexpr std::uint64_t k_between_looks = 16 << 20;

// True if the machine has memory for copies of this total size. Without enough memory, the kernel
// would call the OOM killer.
bool has_memory_for(std::uint64_t bytes) {
  const std::uint64_t looked = g_looked_up_to.load(std::memory_order_relaxed);
  if (bytes <= looked) return true;
  const std::uint64_t memory = base::available_memory();
  if (memory != UINT64_MAX && memory < bytes - looked + k_between_looks + base::k_memory_left_alone)
    return false;
  g_looked_up_to.store(bytes + k_between_looks, std::memory_order_relaxed);
  return true;
}

// Call this after the mapping. Returns false if the fd no longer refers to the copy. The program
// may have closed the fd and opened another file under it.
bool is_copy_of(const OpenFile& file, int fd) {
  struct ::stat st {};
  return !sys::failed(sys::fstat(fd, &st)) && S_ISREG(st.st_mode) && st.st_nlink == 0 &&
         static_cast<std::uint64_t>(st.st_size) == file.size;
}

long map_once(const OpenFile& file, const mappings::MapRequest& request) {
  const BlockSignals block;
  const int fd = kernel_file::copy_bytes_of(*file.record);
  if (fd < 0) return -ESTALE;
  const long at =
      sys::mmap(request.at, request.length, request.protection, request.flags, fd, request.offset);
  if (is_copy_of(file, fd)) {
    sys::close(fd);
    return at;
  }
  // The fd refers to another file now. With MAP_FIXED, the next try replaces the wrong mapping.
  if (!sys::failed(at) && (request.flags & MAP_FIXED) == 0)
    sys::munmap(reinterpret_cast<void*>(at), request.length);
  return -EAGAIN;
}

}  // namespace

std::uint64_t cost(const OpenFile& file) {
  return (file.size + cache::k_page - 1) / cache::k_page * cache::k_page;
}

long map(const OpenFile& file, const mappings::MapRequest& request, std::uint64_t most_bytes) {
  const std::uint64_t bytes = cost(file);
  const std::uint64_t all = g_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  long at = -ENOMEM;
  if (all <= most_bytes && has_memory_for(all)) {
    at = -EAGAIN;
    for (int attempt = 0; attempt < 8 && at == -EAGAIN; ++attempt) at = map_once(file, request);
    if (at == -EAGAIN) at = -ESTALE;
  }
  if (sys::failed(at)) drop(bytes);
  return at;
}

void add(std::uint64_t bytes) { g_bytes.fetch_add(bytes, std::memory_order_relaxed); }
void drop(std::uint64_t bytes) { g_bytes.fetch_sub(bytes, std::memory_order_relaxed); }
void forget_after_fork() { g_bytes.store(0, std::memory_order_relaxed); }

}  // namespace cube::shim::mapped_copy
