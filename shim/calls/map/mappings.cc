#include "shim/calls/map/mappings.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/base/memory/kernel_page.h"
#include "shim/calls/map/mapped_copy.h"
#include "shim/calls/map/mapping_rows.h"
#include "shim/fd/materialize.h"
#include "shim/fd/region_fd.h"
#include "shim/process/attachment.h"
#include "shim/process/process.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::mappings {

namespace {

namespace sys = base::sys;
using cache::k_page;

// The copies of one process use at most 1 / k_copies_share of the region.
constexpr std::uint64_t k_copies_share = 16;

long map_through(int fd, const MapRequest& request, std::uint64_t offset) {
  return sys::mmap(request.at, request.length, request.protection, request.flags, fd,
                   static_cast<std::int64_t>(offset));
}

long map_file_of(cache::Region& region, const MapRequest& request, std::uint64_t offset) {
  // With MAP_FIXED, even a wrong first try through the kept fd would destroy the program's old
  // mapping. So do not try the kept fd.
  const int kept = region_fd::kept();
  if (kept >= 0 && (request.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == 0) {
    const long at = map_through(kept, request, offset);
    if (!sys::failed(at) && region.is_ours(kept)) return at;
    if (!sys::failed(at)) sys::munmap(reinterpret_cast<void*>(at), request.length);
    region_fd::forget(kept);
  }
  auto fd = region.reopen(O_RDONLY);
  if (!fd) return -ESTALE;
  const long at = map_through(fd->get(), request, offset);
  if (region.is_ours(fd->get())) {
    region_fd::keep(fd->get());
    return at;
  }
  // Another thread has closed the fd, and perhaps opened another file under its number. With
  // MAP_FIXED, the kernel's mapping will replace the wrong one.
  fd->release();
  if (!sys::failed(at) && (request.flags & MAP_FIXED) == 0)
    sys::munmap(reinterpret_cast<void*>(at), request.length);
  return -ESTALE;
}

// Returns a pin on a record of this file that can be mapped.
cache::Pin mappable_pin(cache::FileCache& cache, const OpenFile& file) {
  if (file.record->is_mappable()) return file.pin.duplicate();
  auto pin = cache.make_mappable(*file.record);
  return pin ? std::move(*pin) : cache::Pin();
}

long map_into(MappingRow& entry, cache::FileCache& cache, const OpenFile& file,
              const MapRequest& request) {
  // A forked child may have the record in its own memory (keep_own_copies).
  entry.is_copy = !cache.region().holds(file.record) || cache.ahead().ring().holds(*file.record);
  if (entry.is_copy) {
    const std::uint64_t most = cache.region().layout().file_bytes / k_copies_share;
    const long at = mapped_copy::map(file, request, most);
    if (!sys::failed(at)) entry.copy_bytes = mapped_copy::cost(file);
    return at;
  }
  cache::Pin pin = mappable_pin(cache, file);
  if (!pin) return -ESTALE;
  cache.ahead().ring().note_mapped(*pin);
  const auto offset =
      cache.region().offset_of(pin->data()) + static_cast<std::uint64_t>(request.offset);
  const long at = map_file_of(cache.region(), request, offset);
  if (!sys::failed(at)) entry.pin = std::move(pin).keep();
  return at;
}

long map_served(const OpenFile& file, const MapRequest& request) {
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr) return -ESTALE;
  MappingRow* const entry = take_entry();
  if (entry == nullptr) return -ENOMEM;
  const long at = map_into(*entry, *cache, file, request);
  if (sys::failed(at)) {
    free_entry(*entry);
    return at;
  }
  const auto begin = static_cast<std::uintptr_t>(at);
  if (any()) unmapped(reinterpret_cast<void*>(at), request.length);
  entry->file_end = begin + round_up(file.size - static_cast<std::uint64_t>(request.offset));
  entry->protection = request.protection;
  entry->flags = request.flags;
  publish(*entry, {begin, begin + round_up(request.length)});
  g_count.fetch_add(1, std::memory_order_acq_rel);
  return at;
}

}  // namespace

long map_region(cache::Region& region, const MapRequest& request, std::uint64_t offset) {
  return map_file_of(region, request, offset);
}

bool show_piece(cache::Region& region, int fd, const MapRequest& piece, std::uint64_t offset,
                bool& is_shown) {
  const long at = map_through(fd, piece, offset);
  is_shown = !sys::failed(at);
  // The program may have closed all fds and opened a file under this fd.
  const bool is_ours = region.is_ours(fd);
  if (!is_ours) region_fd::forget(fd);
  return is_ours;
}

NewRow::NewRow() : row_(take_entry()) {}

NewRow::~NewRow() {
  if (row_ != nullptr) free_entry(*row_);
}

void NewRow::note(std::uintptr_t at, const MapRequest& request, cache::LargeFile& file,
                  std::size_t pieces) {
  if (any()) unmapped(reinterpret_cast<void*>(at), request.length);
  MappingRow* const entry = std::exchange(row_, nullptr);
  entry->is_copy = false;
  entry->file_end = at + round_up(request.length);
  entry->large = file.share();
  entry->pieces = pieces;
  entry->offset_of_end = static_cast<std::uint64_t>(request.offset) + round_up(request.length);
  entry->protection = request.protection;
  entry->flags = request.flags;
  publish(*entry, {at, at + round_up(request.length)});
  g_count.fetch_add(1, std::memory_order_acq_rel);
}

MapResult map(OpenFile& file, const MapRequest& request, long& result) {
  const int type = request.flags & 0x0f;
  const bool is_private = type == MAP_PRIVATE;
  const bool is_shared = type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
  const bool plain =
      (request.flags & ~(0x0f | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_POPULATE | MAP_NORESERVE)) ==
      0;
  // The kernel must make the mapping if the flags need the kernel, or if the mapping extends beyond
  // the last page of the file.
  if ((!is_private && !is_shared) || !plain ||
      (request.protection & ~(PROT_READ | PROT_WRITE)) != 0)
    return MapResult::not_here;
  if (request.length == 0 || request.offset < 0 ||
      request.offset % static_cast<std::int64_t>(k_page) != 0)
    return MapResult::not_here;
  // Records are aligned to 4 KiB. With larger pages, the mapping would also show the next record.
  if (base::kernel_page() != k_page) return MapResult::not_here;
  const auto offset = static_cast<std::uint64_t>(request.offset);
  if (offset >= file.size || round_up(request.length) > round_up(file.size - offset))
    return MapResult::not_here;
  if (is_shared && (request.protection & PROT_WRITE) != 0) return MapResult::not_here;
  result = map_served(file, request);
  return sys::failed(result) && (result == -ESTALE || result == -ENOMEM) ? MapResult::not_here
                                                                         : MapResult::done;
}

void unmapped(void* at, std::size_t length) {
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const PageRange gone{begin, begin + round_up(length)};
  if (auto* const reader = own_threads::reader(); reader != nullptr)
    reader->mapped().unmapped(at, length);
  remove_rows(gone);
}

void advised(void* at, std::size_t length, int advice) {
  if (auto* const reader = own_threads::reader(); reader != nullptr)
    reader->mapped().advised(at, round_up(length), advice);
}

void forget_after_fork() {
  region_fd::drop();
  mapped_copy::forget_after_fork();
  forget_rows();
}

}  // namespace cube::shim::mappings
