#include "shim/mappings.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shim/process.h"

namespace cube::shim::mappings {

constinit std::atomic<int> g_count{0};

namespace {

namespace sys = base::sys;
using cache::k_page;

// A pin and the pages that it covers. An entry is free when `begin` is 0 and is being filled when it is 1.
struct Entry {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  cache::Pin pin;
};
constexpr std::size_t k_entries = 4096;
constinit Entry g_entries[k_entries];
constinit std::atomic<std::size_t> g_used{0};  // entries below this may be in use

// An fd of the region with a high number. The host may close it or put something else there, so what was mapped through it
// is believed only if the number is the region's after the mapping too; then it is mapped again through a fresh one.
constexpr int k_region_fd_from = 800;
constinit std::atomic<int> g_region_fd{-1};

long map_through(int fd, const MapRequest& request, std::uint64_t offset) {
  return sys::mmap(request.at, request.length, request.protection, request.flags, fd, static_cast<std::int64_t>(offset));
}

long map_file_of(cache::Region& region, const MapRequest& request, std::uint64_t offset) {
  // MAP_FIXED has no second try: what it replaces is gone.
  const int kept = g_region_fd.load(std::memory_order_acquire);
  if (kept >= 0 && (request.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == 0) {
    const long at = map_through(kept, request, offset);
    if (!sys::failed(at) && region.is_ours(kept)) return at;
    if (!sys::failed(at)) sys::munmap(reinterpret_cast<void*>(at), request.length);
    int expected = kept;
    g_region_fd.compare_exchange_strong(expected, -1, std::memory_order_acq_rel);
  }
  const auto fd = region.reopen(O_RDONLY);
  if (!fd) return -ESTALE;
  const long at = map_through(fd->get(), request, offset);
  const long high = sys::fcntl(fd->get(), F_DUPFD_CLOEXEC, k_region_fd_from);
  if (sys::failed(high)) return at;
  int none = -1;
  if (!g_region_fd.compare_exchange_strong(none, static_cast<int>(high), std::memory_order_acq_rel))
    sys::close(static_cast<int>(high));
  return at;
}

constexpr std::uint64_t round_up(std::uint64_t n) { return (n + k_page - 1) / k_page * k_page; }

Entry* take_entry() {
  for (std::size_t i = 0; i < k_entries; ++i) {
    std::uintptr_t free = 0;
    if (!g_entries[i].begin.compare_exchange_strong(free, 1, std::memory_order_acquire)) continue;
    std::size_t used = g_used.load(std::memory_order_relaxed);
    while (used <= i && !g_used.compare_exchange_weak(used, i + 1, std::memory_order_acq_rel)) {
    }
    return &g_entries[i];
  }
  return nullptr;
}

// A pin on a record of this file that can be mapped.
cache::Pin mappable_pin(cache::FileCache& cache, const OpenFile& file) {
  if (file.record->is_mappable()) return file.pin.duplicate();
  auto pin = cache.make_mappable(*file.record);
  return pin ? std::move(*pin) : cache::Pin();
}

// The ring's bytes make room for others one day, whoever maps them: such a mapping has its own.
long map_copy(const OpenFile& file, const MapRequest& request) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (request.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_NORESERVE));
  const long at = sys::mmap(request.at, request.length, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (sys::failed(at)) return at;
  const auto offset = static_cast<std::uint64_t>(request.offset);
  auto* const to = reinterpret_cast<std::byte*>(at);
  std::memcpy(to, file.data + offset, std::min<std::uint64_t>(request.length, file.size - offset));
  if (request.protection == (PROT_READ | PROT_WRITE)) return at;
  const long error = sys::raw(SYS_mprotect, at, static_cast<long>(request.length), request.protection);
  if (!sys::failed(error)) return at;
  sys::munmap(to, request.length);
  return error;
}

long map_region(const OpenFile& file, const MapRequest& request) {
  cache::FileCache* const cache = process::attached_cache();
  if (cache == nullptr) return -ESTALE;
  if (cache->ring().holds(*file.record)) return map_copy(file, request);
  cache::Pin pin = mappable_pin(*cache, file);
  if (!pin) return -ESTALE;
  Entry* const entry = take_entry();
  if (entry == nullptr) return -ENOMEM;
  const auto offset = cache->region().offset_of(pin->data()) + static_cast<std::uint64_t>(request.offset);
  const long at = map_file_of(cache->region(), request, offset);
  if (sys::failed(at)) {
    entry->begin.store(0, std::memory_order_release);
    return at;
  }
  entry->pin = std::move(pin);
  entry->end.store(static_cast<std::uintptr_t>(at) + round_up(request.length), std::memory_order_relaxed);
  entry->begin.store(static_cast<std::uintptr_t>(at), std::memory_order_release);
  g_count.fetch_add(1, std::memory_order_acq_rel);
  return at;
}

}  // namespace

MapResult map(OpenFile& file, const MapRequest& request, long& result) {
  const int type = request.flags & 0x0f;
  const bool is_private = type == MAP_PRIVATE;
  const bool is_shared = type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
  const bool plain = (request.flags & ~(0x0f | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_POPULATE | MAP_NORESERVE)) == 0;
  // What the kernel has an opinion of, or what reaches beyond the last page of the file, is the kernel's.
  if ((!is_private && !is_shared) || !plain || (request.protection & ~(PROT_READ | PROT_WRITE)) != 0) return MapResult::not_here;
  if (request.length == 0 || request.offset < 0 || request.offset % static_cast<std::int64_t>(k_page) != 0)
    return MapResult::not_here;
  const auto offset = static_cast<std::uint64_t>(request.offset);
  if (offset >= file.size || round_up(request.length) > round_up(file.size - offset)) return MapResult::not_here;
  if (is_shared && (request.protection & PROT_WRITE) != 0) return MapResult::not_here;
  result = map_region(file, request);
  return sys::failed(result) && (result == -ESTALE || result == -ENOMEM) ? MapResult::not_here : MapResult::done;
}

void unmapped(void* at, std::size_t length) {
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const std::uintptr_t end = begin + round_up(length);
  const std::size_t used = g_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    Entry& entry = g_entries[i];
    std::uintptr_t from = entry.begin.load(std::memory_order_acquire);
    if (from <= 1) continue;
    const std::uintptr_t to = entry.end.load(std::memory_order_relaxed);
    if (begin <= from && end >= to) {
      if (!entry.begin.compare_exchange_strong(from, 1, std::memory_order_acq_rel)) continue;
      entry.pin.release();
      g_count.fetch_sub(1, std::memory_order_acq_rel);
      entry.begin.store(0, std::memory_order_release);
    } else if (begin <= from && end > from) {
      // The head is gone; a hole in the middle leaves the claim as it is, until all the rest is unmapped at once.
      entry.begin.store(end, std::memory_order_release);
    } else if (begin > from && begin < to && end >= to) {
      entry.end.store(begin, std::memory_order_release);
    }
  }
}

bool keep_for_good(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  for (std::size_t i = 0; i < g_used.load(std::memory_order_acquire); ++i) {
    Entry& entry = g_entries[i];
    std::uintptr_t from = entry.begin.load(std::memory_order_acquire);
    if (from <= 1 || address < from || address >= entry.end.load(std::memory_order_relaxed)) continue;
    if (entry.begin.compare_exchange_strong(from, 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void drop_region_fd() {
  const int fd = g_region_fd.exchange(-1, std::memory_order_acq_rel);
  cache::FileCache* const cache = process::attached_cache();
  if (fd >= 0 && cache != nullptr && cache->region().is_ours(fd)) sys::close(fd);
}

void forget_after_fork() {
  drop_region_fd();
  for (std::size_t i = 0; i < g_used.load(std::memory_order_relaxed); ++i) {
    // Of entries that were being filled, or are kept for good, too.
    g_entries[i].pin.forget();
    g_entries[i].begin.store(0, std::memory_order_relaxed);
  }
  g_count.store(0, std::memory_order_relaxed);
}

}  // namespace cube::shim::mappings
