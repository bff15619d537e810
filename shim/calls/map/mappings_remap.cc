// mappings: mremap, which moves, resizes or duplicates a mapping. To the kernel, the mapping may
// consist of several parts.
#include <algorithm>
#include <cerrno>
#include <optional>

#include "cache/region/posix_locks.h"
#include "shim/calls/map/mapping_rows.h"
#include "shim/calls/map/mappings.h"
#include "shim/calls/map/process_maps.h"
#include "shim/fd/kernel_file.h"

namespace cube::shim::mappings {
namespace {

namespace sys = base::sys;
using cache::k_page;

// Replaces the part of a mapping past the file's last page, where the region holds another record.
// The part then maps an empty file or, for a large file, the origin's file.
void end_mapping_at(std::uintptr_t from, std::uintptr_t end, const MappingRow& entry,
                    int protection, int file, std::uint64_t offset) {
  auto* const at = reinterpret_cast<void*>(from);
  const int flags = (entry.flags & (MAP_SHARED | MAP_PRIVATE)) | MAP_FIXED;
  if (sys::failed(
          sys::mmap(at, end - from, protection, flags, file, static_cast<std::int64_t>(offset))))
    sys::munmap(at, end - from);
}

// Returns the protection of these pages. Returns nothing if the pages differ, if a page is not
// mapped, or if the protection cannot be read.
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

// Moves the parts of a mapping one by one. Returns how many bytes were moved. The kernel does not
// report where a part ends, so this function finds the ends by bisection.
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

// Grows or moves a mapping that shows parts of both the region and the origin's file. The kernel's
// mremap refuses such a mapping, because to the kernel it is several mappings. The added part has
// no pages yet.
long remap_parts(const RemapRequest& request) {
  const auto at = reinterpret_cast<std::uintptr_t>(request.at);
  const std::uint64_t old_size = round_up(request.old_size), size = round_up(request.new_size),
                      moving = std::min(old_size, size);
  const bool is_placed = (request.flags & MREMAP_FIXED) != 0;
  if (!is_placed && size > old_size) {
    const long more = reserve(at + old_size, size - old_size, MAP_FIXED_NOREPLACE);
    if (more == static_cast<long>(at + old_size)) return static_cast<long>(at);
    // Linux before 4.17 treats the address as a hint.
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
  // Opens the file before the move, because the call can no longer fail after the move.
  const std::uint64_t size = round_up(request.new_size), old_size = old.end - old.begin,
                      rest = entry->file_end - std::min(at, entry->file_end),
                      offset = entry->offset_of_end + at - entry->file_end;
  // In the region, another file's bytes follow a piece of a large file. So the added part maps the
  // origin's file.
  const std::uint64_t kept = entry->large != nullptr ? old_size : rest;
  // The old range may extend into another mapping of the program.
  const bool is_within = old.end <= range.end;
  const bool is_longer =
      !entry->is_copy && rest != 0 && is_within && size > std::max(kept, old_size);
  const cache::OriginFd rest_of_file = !is_longer ? cache::OriginFd()
                                       : entry->large != nullptr
                                           ? entry->large->reopen()
                                           : cache::OriginFd(kernel_file::make_empty());
  std::optional<int> protection;
  long to = -ENOMEM;
  if (other != nullptr && (!is_longer || rest_of_file)) {
    if (is_longer) protection = protection_of({at, std::max(old.end, at + 1)});
    to = call();
    // If the program's own mprotect has split the mapping, the kernel's error is right.
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
                     rest_of_file.get(), offset + kept);
    if (other != entry) {
      copy_entry(*entry, *other);
      publish_without(*entry, range, stays_there ? PageRange{} : old);
      g_count.fetch_add(1, std::memory_order_acq_rel);
    }
    // This must follow publish_without, because the program's call may also have replaced pages
    // that still belong to `entry`.
    if ((request.flags & MREMAP_FIXED) != 0) unmapped(request.to, request.new_size);
    other->file_end = begin + rest;
    if (other->large != nullptr) other->offset_of_end = offset + rest;
    publish(*other, {begin, begin + (is_within ? size : std::min(size, range.end - at))});
  }
  return to;
}

}  // namespace cube::shim::mappings
