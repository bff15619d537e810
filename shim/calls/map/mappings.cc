#include "shim/calls/map/mappings.h"

#include <algorithm>
#include <cerrno>
#include <type_traits>
#include <utility>

#include "cache/base/memory/kernel_page.h"
#include "shim/calls/map/mapped_copy.h"
#include "shim/calls/map/process_maps.h"
#include "shim/fd/kernel_file.h"
#include "shim/fd/materialize.h"
#include "shim/fd/region_fd.h"
#include "shim/process/attachment.h"
#include "shim/process/process.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::mappings {

constinit std::atomic<int> g_count{0};

namespace {

namespace sys = base::sys;
using cache::k_page;

// A mapping, or several adjacent ones of one file. An entry is free if `begin` is 0. If `begin` is
// 1, one thread fills or changes the entry and owns its plain fields. It has no destructor, which
// would touch each row at the end of every program.
struct MappingRow {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::uintptr_t file_end =
      0;  // the end of the last page that may be shown, if all of the file were mapped here
  cache::LargeFile* large = nullptr;  // past that end are pages of this file
  std::uint64_t offset_of_end = 0;    // of that end in the file
  bool is_copy = false;               // or of the region
  std::uint64_t copy_bytes = 0;       // that it counts for
  std::size_t pieces = 0;             // of a large file, that it counts for
  int protection = 0, flags = 0;
  cache::Pin::Kept pin;
};
static_assert(std::is_trivially_destructible_v<MappingRow>);
constexpr std::size_t k_entries = 4096;
constinit MappingRow g_entries[k_entries];
// The copies of one process are at most this part of the region.
constexpr std::uint64_t k_copies_share = 16;
constinit std::atomic<std::size_t> g_used{0};  // entries below this may be in use
// A process may have 65,530 mappings by default. A piece is one, and so is each gap between two
// pieces; the program needs the rest.
constexpr std::size_t k_most_pieces = 4096;
constinit std::atomic<std::size_t> g_pieces{0};

long map_through(int fd, const MapRequest& request, std::uint64_t offset) {
  return sys::mmap(request.at, request.length, request.protection, request.flags, fd,
                   static_cast<std::int64_t>(offset));
}

long map_file_of(cache::Region& region, const MapRequest& request, std::uint64_t offset) {
  // MAP_FIXED allows no second try: what it replaces is gone.
  const int kept = region_fd::kept();
  if (kept >= 0 && (request.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == 0) {
    const long at = map_through(kept, request, offset);
    if (!sys::failed(at) && region.is_ours(kept)) return at;
    if (!sys::failed(at)) sys::munmap(reinterpret_cast<void*>(at), request.length);
    region_fd::forget(kept);
  }
  const auto fd = region.reopen(O_RDONLY);
  if (!fd) return -ESTALE;
  const long at = map_through(fd->get(), request, offset);
  region_fd::keep(fd->get());
  return at;
}

constexpr std::uint64_t round_up(std::uint64_t n) { return (n + k_page - 1) / k_page * k_page; }

MappingRow* take_entry() {
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

struct PageRange {
  std::uintptr_t begin = 0, end = 0;
  bool is_empty() const { return begin >= end; }
};

void free_entry(MappingRow& entry) {
  cache::Pin(std::exchange(entry.pin, {})).release();
  if (entry.large != nullptr) std::exchange(entry.large, nullptr)->end();
  mapped_copy::drop(std::exchange(entry.copy_bytes, 0));
  g_pieces.fetch_sub(std::exchange(entry.pieces, 0), std::memory_order_relaxed);
  entry.begin.store(0, std::memory_order_release);
}

void publish(MappingRow& entry, const PageRange& range) {
  entry.end.store(range.end, std::memory_order_relaxed);
  entry.begin.store(range.begin, std::memory_order_release);
}

// Makes another entry for the same file.
void copy_entry(const MappingRow& from, MappingRow& to) {
  to.file_end = from.file_end;
  to.large = from.large != nullptr ? from.large->share() : nullptr;
  to.offset_of_end = from.offset_of_end;
  to.is_copy = from.is_copy;
  to.protection = from.protection;
  to.flags = from.flags;
  to.pin = cache::Pin::duplicate_of(from.pin).keep();
  to.copy_bytes = from.copy_bytes;
  mapped_copy::add(to.copy_bytes);
}

// Publishes a claimed entry with what is left of its range.
void publish_without(MappingRow& entry, const PageRange& all, const PageRange& gone) {
  const PageRange head{all.begin, std::min(all.end, gone.begin)},
      tail{std::max(all.begin, gone.end), all.end};
  if (head.is_empty() && tail.is_empty()) {
    free_entry(entry);
    g_count.fetch_sub(1, std::memory_order_acq_rel);
    return;
  }
  if (!head.is_empty() && !tail.is_empty()) {
    if (MappingRow* const other = take_entry(); other != nullptr) {
      copy_entry(entry, *other);
      publish(*other, tail);
      g_count.fetch_add(1, std::memory_order_acq_rel);
    }
  }
  publish(entry, head.is_empty() ? tail : head);
}

long map_into(MappingRow& entry, cache::FileCache& cache, const OpenFile& file,
              const MapRequest& request) {
  // A forked child may have a record in memory of its own (keep_own_copies).
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
  // The host may have closed all fds that it knows, and opened a file of its own by this one.
  const bool is_ours = region.is_ours(fd);
  if (!is_ours) region_fd::forget(fd);
  return is_ours;
}

std::size_t take_pieces(std::size_t most) {
  std::size_t before = g_pieces.load(std::memory_order_relaxed), taken = 0;
  do {
    taken = std::min(most, k_most_pieces - std::min(before, k_most_pieces));
  } while (!g_pieces.compare_exchange_weak(before, before + taken, std::memory_order_relaxed));
  return taken;
}

void give_pieces_back(std::size_t count) { g_pieces.fetch_sub(count, std::memory_order_relaxed); }

bool note_mapping(std::uintptr_t at, const MapRequest& request, cache::LargeFile& file,
                  std::size_t pieces) {
  if (any()) unmapped(reinterpret_cast<void*>(at), request.length);
  MappingRow* const entry = take_entry();
  if (entry == nullptr) return false;
  entry->is_copy = false;
  entry->file_end = at + round_up(request.length);
  entry->large = file.share();
  entry->pieces = pieces;
  entry->offset_of_end = static_cast<std::uint64_t>(request.offset) + round_up(request.length);
  entry->protection = request.protection;
  entry->flags = request.flags;
  publish(*entry, {at, at + round_up(request.length)});
  g_count.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

namespace {

// Returns the entry that covers this address, ours to change until it is published; `range` is
// where it was.
MappingRow* claim_entry_at(std::uintptr_t address, PageRange& range) {
  for (std::size_t i = 0; i < g_used.load(std::memory_order_acquire); ++i) {
    MappingRow& entry = g_entries[i];
    std::uintptr_t from = entry.begin.load(std::memory_order_acquire);
    if (from <= 1 || address < from || address >= entry.end.load(std::memory_order_relaxed))
      continue;
    if (!entry.begin.compare_exchange_strong(from, 1, std::memory_order_acq_rel)) continue;
    range = {from, entry.end.load(std::memory_order_relaxed)};
    return &entry;
  }
  return nullptr;
}

// Past a file's last page, the region holds another record. From there on, the mapping is one of an
// empty file or, for a large file, of the origin's file from this offset on.
void end_mapping_at(std::uintptr_t from, std::uintptr_t end, const MappingRow& entry,
                    int protection, int file, std::uint64_t offset) {
  auto* const at = reinterpret_cast<void*>(from);
  const int flags = (entry.flags & (MAP_SHARED | MAP_PRIVATE)) | MAP_FIXED;
  if (sys::failed(
          sys::mmap(at, end - from, protection, flags, file, static_cast<std::int64_t>(offset))))
    sys::munmap(at, end - from);
}

// The protection of these pages; nothing if they differ in it, are not all mapped, or if it cannot
// be read.
std::optional<int> protection_of(const PageRange& range) {
  std::optional<int> found;
  std::uintptr_t end = range.begin;
  bool is_one = true;
  const bool is_read =
      process_maps::visit_mappings([&](const process_maps::ProgramMapping& mapping) {
        if (mapping.range.end <= range.begin || mapping.range.begin >= range.end) return;
        is_one &=
            mapping.range.begin <= end && found.value_or(mapping.protection) == mapping.protection;
        found = mapping.protection;
        end = mapping.range.end;
      });
  return is_read && is_one && end >= range.end ? found : std::nullopt;
}

// Moves the parts of a mapping one after the other, and returns how many bytes have moved. The
// kernel does not say where a part ends.
std::uint64_t move_parts(std::uintptr_t from, std::uintptr_t to, std::uint64_t size, int flags) {
  const long at = sys::raw(SYS_mremap, static_cast<long>(from), static_cast<long>(size),
                           static_cast<long>(size), flags | MREMAP_MAYMOVE | MREMAP_FIXED,
                           static_cast<long>(to));
  if (!sys::failed(at)) return size;
  if (at != -EFAULT || size <= k_page) return 0;
  const std::uint64_t half = size / 2 / k_page * k_page, moved = move_parts(from, to, half, flags);
  return moved < half ? moved : half + move_parts(from + half, to + half, size - half, flags);
}

long reserve(std::uintptr_t at, std::uint64_t size, int flags) {
  return sys::mmap(reinterpret_cast<void*>(at), size, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

// The kernel grows or moves one mapping, but a mapping that shows parts of the region and of the
// origin's file consists of several. The added part has no pages yet.
long remap_parts(const RemapRequest& request) {
  const auto at = reinterpret_cast<std::uintptr_t>(request.at);
  const std::uint64_t old_size = round_up(request.old_size), size = round_up(request.new_size),
                      moving = std::min(old_size, size);
  const bool is_placed = (request.flags & MREMAP_FIXED) != 0;
  if (!is_placed && size > old_size) {
    const long more = reserve(at + old_size, size - old_size, MAP_FIXED_NOREPLACE);
    if (more == static_cast<long>(at + old_size)) return static_cast<long>(at);
    // Linux before 4.17 takes the place for a hint.
    if (!sys::failed(more)) sys::munmap(reinterpret_cast<void*>(more), size - old_size);
  }
  if ((request.flags & MREMAP_MAYMOVE) == 0) return -ENOMEM;
  const long to = is_placed ? sys::arg(request.to) : reserve(0, size, 0);
  if (sys::failed(to)) return to;
  const int kept = request.flags & MREMAP_DONTUNMAP;
  const auto begin = static_cast<std::uintptr_t>(to);
  const std::uint64_t moved = move_parts(at, begin, moving, kept);
  if (moved == moving) {
    if (size < old_size) sys::munmap(reinterpret_cast<void*>(at + size), old_size - size);
    return to;
  }
  if (kept == 0) move_parts(begin, at, moved, 0);
  if (!is_placed) sys::munmap(reinterpret_cast<void*>(to), size);
  return -ENOMEM;
}

}  // namespace

MapResult map(OpenFile& file, const MapRequest& request, long& result) {
  const int type = request.flags & 0x0f;
  const bool is_private = type == MAP_PRIVATE;
  const bool is_shared = type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
  const bool plain =
      (request.flags & ~(0x0f | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_POPULATE | MAP_NORESERVE)) ==
      0;
  // The kernel makes a mapping if its flags are for the kernel, or if it reaches beyond the last
  // page of the file.
  if ((!is_private && !is_shared) || !plain ||
      (request.protection & ~(PROT_READ | PROT_WRITE)) != 0)
    return MapResult::not_here;
  if (request.length == 0 || request.offset < 0 ||
      request.offset % static_cast<std::int64_t>(k_page) != 0)
    return MapResult::not_here;
  // The data of a record begins and ends at a boundary of 4 KiB. With larger pages, the next record
  // would show after it.
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
  const std::size_t used = g_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    MappingRow& entry = g_entries[i];
    std::uintptr_t from = entry.begin.load(std::memory_order_acquire);
    if (from <= 1 || from >= gone.end || entry.end.load(std::memory_order_relaxed) <= gone.begin)
      continue;
    if (!entry.begin.compare_exchange_strong(from, 1, std::memory_order_acq_rel)) continue;
    publish_without(entry, {from, entry.end.load(std::memory_order_relaxed)}, gone);
  }
}

void advised(void* at, std::size_t length, int advice) {
  if (auto* const reader = own_threads::reader(); reader != nullptr)
    reader->mapped().advised(at, round_up(length), advice);
}

std::optional<long> remap(const RemapRequest& request) {
  const auto call = [&] {
    return sys::raw(SYS_mremap, sys::arg(request.at), static_cast<long>(request.old_size),
                    static_cast<long>(request.new_size), request.flags, sys::arg(request.to));
  };
  const auto at = reinterpret_cast<std::uintptr_t>(request.at);
  PageRange range{};
  MappingRow* const entry = claim_entry_at(at, range);
  if (entry == nullptr) {
    if ((request.flags & MREMAP_FIXED) == 0) return {};
    const long to = call();
    if (!sys::failed(to)) unmapped(request.to, request.new_size);
    return to;
  }
  const PageRange old{at, at + round_up(request.old_size)};
  const bool stays_there = request.old_size == 0 || (request.flags & MREMAP_DONTUNMAP) != 0;
  const bool is_all = !stays_there && old.begin == range.begin && old.end == range.end;
  MappingRow* const other = is_all ? entry : take_entry();
  // The file is opened beforehand, because it is too late to fail afterwards.
  const std::uint64_t size = round_up(request.new_size), old_size = old.end - old.begin,
                      rest = entry->file_end - std::min(at, entry->file_end),
                      offset = entry->offset_of_end + at - entry->file_end;
  // A piece of the region is followed by another file's, so the added part maps the origin's file.
  const std::uint64_t kept = entry->large != nullptr ? old_size : rest;
  // The old range may reach into the program's next mapping.
  const bool is_within = old.end <= range.end;
  const bool is_longer =
      !entry->is_copy && rest != 0 && is_within && size > std::max(kept, old_size);
  const int rest_of_file = !is_longer                ? -1
                           : entry->large != nullptr ? entry->large->reopen().release()
                                                     : kernel_file::make_empty();
  std::optional<int> protection;
  long to = -ENOMEM;
  if (other != nullptr && (!is_longer || rest_of_file >= 0)) {
    if (is_longer) protection = protection_of({at, std::max(old.end, at + 1)});
    to = call();
    // The program's own mprotect may have split the mapping as well, and the kernel is right then.
    if (to == -EFAULT && size <= old_size) protection = protection_of(old);
    if (to == -EFAULT && protection && old_size != 0 && is_within) to = remap_parts(request);
  }
  if (sys::failed(to)) {
    if (other != nullptr && other != entry) free_entry(*other);
    publish(*entry, range);
  } else {
    const auto begin = static_cast<std::uintptr_t>(to);
    if (is_longer)
      end_mapping_at(begin + kept, begin + size, *entry, protection.value_or(entry->protection),
                     rest_of_file, offset + kept);
    if (other != entry) {
      copy_entry(*entry, *other);
      publish_without(*entry, range, stays_there ? PageRange{} : old);
      g_count.fetch_add(1, std::memory_order_acq_rel);
    }
    // The row that was left may cover the pages that have been replaced.
    if ((request.flags & MREMAP_FIXED) != 0) unmapped(request.to, request.new_size);
    other->file_end = begin + rest;
    if (other->large != nullptr) other->offset_of_end = offset + rest;
    publish(*other, {begin, begin + (is_within ? size : std::min(size, range.end - at))});
  }
  if (rest_of_file >= 0) sys::close(rest_of_file);
  return to;
}

void forget_after_fork() {
  region_fd::drop();
  mapped_copy::forget_after_fork();
  int count = 0;
  for (std::size_t i = 0; i < g_used.load(std::memory_order_relaxed); ++i) {
    MappingRow& entry = g_entries[i];
    entry.pin = {};
    entry.copy_bytes = 0;
    // An entry that was being filled is the work of another thread, which the child does not have.
    if (entry.begin.load(std::memory_order_relaxed) > 1) {
      ++count;
    } else {
      entry.begin.store(0, std::memory_order_relaxed);
    }
  }
  g_count.store(count, std::memory_order_relaxed);
}

}  // namespace cube::shim::mappings
