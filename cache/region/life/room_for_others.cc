#include "cache/region/life/room_for_others.h"

#include <algorithm>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/region/large/chunks.h"
#include "cache/region/reclaim_segment.h"
#include "cache/region/region.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_between_room_looks_ns = 10'000'000;
constexpr int k_looks_at_gift = 1000;
enum class Goes : std::uint8_t { empty, read, any };

// Gives the memory of these segments back to the machine. This process must own the segments, and
// lookups must find nothing in them. Clears the marks first. If the process dies in between, some
// memory will be reserved twice, which does no harm. But no segment without memory ever has the
// mark.
void drop_memory(const Region& region, std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = first; i < first + count; ++i)
    region.segment_row(i).has_memory.store(0, std::memory_order_release);
  const std::uint64_t segment_bytes = region.layout().segment_bytes;
  const auto window = region.window(segment_bytes * first, segment_bytes * count);
  if (window) base::sys::madvise(window->data(), window->size(), MADV_REMOVE);
}

bool may_go(const Region& region, const SegmentRow& row, Goes goes) {
  if (row.is_mapped.load(std::memory_order_acquire) != 0) return false;
  if (goes == Goes::any) return true;
  const bool waits_for_disk =
      row.fresh.load(std::memory_order_seq_cst) != row.flushed.load(std::memory_order_acquire) &&
      is_tier_writer_alive(region.header());
  return row.unread.load(std::memory_order_seq_cst) == 0 &&
         row.holds_metadata.load(std::memory_order_relaxed) == 0 && !waits_for_disk;
}

std::uint64_t give_back_records(Region& region, std::uint32_t segment, Goes goes) {
  SegmentRow& row = region.segment_row(segment);
  const SegmentWord before = word_of(row);
  if (goes == Goes::empty) {
    if (before.state != SegmentState::free || row.has_memory.load(std::memory_order_relaxed) == 0)
      return 0;
    if (!take_free(region, segment, SegmentState::open)) return 0;
  } else {
    if (!before.is_closed() || !may_go(region, row, goes)) return 0;
    if (!reclaim_segment(region, segment, before, before,
                         [&] { return may_go(region, row, goes); }))
      return 0;
  }
  const std::uint32_t count = run_length_of(region, segment);
  drop_memory(region, segment, count);
  row.is_ring.store(0, std::memory_order_relaxed);
  row.holds_metadata.store(0, std::memory_order_relaxed);
  free_run(region, segment);
  return std::uint64_t{region.layout().segment_bytes} * count;
}

std::uint64_t give_back_chunks(Region& region, std::uint32_t segment, Goes goes) {
  const std::uint32_t each = region.layout().chunks_of_segment();
  std::uint64_t given = 0;
  if (goes == Goes::empty) return given;
  for (std::uint32_t place = segment * each; place < (segment + 1) * each; ++place)
    given += Chunks(region).give_back_memory(place, goes == Goes::any);
  return given;
}

// Whether the last check was at least `between_ns` ago. If true, the caller must check now.
bool is_due(std::atomic<std::uint64_t>& looked_ns, std::uint64_t now, std::uint64_t between_ns) {
  std::uint64_t looked = looked_ns.load(std::memory_order_relaxed);
  return now - looked >= between_ns &&
         looked_ns.compare_exchange_strong(looked, now, std::memory_order_relaxed);
}

// A program that has only hits never checks. So the library's threads must check as soon as the
// region uses more than a sixteenth of the free memory. Less than that is not worth giving back.
void want_looks(RegionHeader& header, std::uint64_t own, std::uint64_t free) {
  if (own > free / 16 && (header.threads_wanted.load(std::memory_order_relaxed) &
                          RegionHeader::k_to_look_at_room) == 0)
    header.threads_wanted.fetch_or(RegionHeader::k_to_look_at_room, std::memory_order_relaxed);
}

// The memory that was left at the last check, in bytes.
constinit std::atomic<std::uint64_t> g_memory_left{UINT64_MAX};

std::uint64_t missing_memory() {
  const base::MemoryLeft memory = base::memory_left();
  g_memory_left.store(memory.left, std::memory_order_relaxed);
  return memory.missing;
}

// The memory that the region's file uses. Empty: the region has lost its name.
std::optional<std::uint64_t> own_bytes(const Region& region) {
  struct ::stat st {};
  if (base::sys::failed(
          base::sys::fstatat(AT_FDCWD, region.path().c_str(), &st, AT_SYMLINK_NOFOLLOW)))
    return {};
  return static_cast<std::uint64_t>(st.st_blocks) * 512;
}

std::uint64_t missing_room(Region& region) {
  const auto room = base::shared_room(region.path().c_str());
  const auto own = own_bytes(region);
  if (!room || !own) return 0;
  want_looks(region.header(), *own, room->free);
  return room->left_to_others() - std::min(room->free, room->left_to_others());
}

}  // namespace

std::uint64_t give_back(Region& region, std::uint64_t bytes) {
  std::uint64_t given = 0;
  // Starts at the end of the region, which holds the ring and large files. The beginning holds the
  // files that programs read first.
  for (const Goes goes : {Goes::empty, Goes::read, Goes::any}) {
    for (std::uint32_t segment = region.layout().segment_count; segment-- > 0 && given < bytes;) {
      const bool has_chunks = word_of(region.segment_row(segment)).state == SegmentState::chunks;
      given += has_chunks ? give_back_chunks(region, segment, goes)
                          : give_back_records(region, segment, goes);
    }
  }
  return given;
}

bool give_back_for(Region& region, std::uint64_t bytes) {
  const auto room = base::shared_room(region.path().c_str());
  const auto own = own_bytes(region);
  if (room && own && bytes > room->free + *own) return false;
  const std::uint64_t free = room ? room->free : 0;
  // Sets the time first, so that no process of the node takes the memory that is about to be given
  // back.
  region.header().gave_back_ns.store(base::coarse_monotonic_ns(), std::memory_order_relaxed);
  if (give_back(region, bytes > free ? bytes - free : 1) > 0) return true;
  // Checks several times, because another process may be giving memory back now.
  for (int looks = 0; looks < k_looks_at_gift; ++looks) {
    const auto now = base::shared_room(region.path().c_str());
    if (now && now->free >= bytes) return true;
    base::sys::raw(SYS_sched_yield);
  }
  return false;
}

void keep_room_for_others(Region& region) {
  RegionHeader& header = region.header();
  const std::uint64_t now = base::coarse_monotonic_ns();
  // Each process checks its memory itself, because processes can be in different control groups.
  // The memory is checked less often than the room, because the check of the memory takes longer.
  static constinit std::atomic<std::uint64_t> memory_looked_ns{0};
  std::uint64_t missing = is_due(memory_looked_ns, now, k_look_at_room_ns) ? missing_memory() : 0;
  // Called each time, because the region may grow to its full size between two checks.
  want_looks(header, header.used_bytes.load(std::memory_order_relaxed),
             g_memory_left.load(std::memory_order_relaxed));
  if (is_due(header.room_looked_ns, now, k_between_room_looks_ns))
    missing = std::max(missing, missing_room(region));
  if (missing == 0) return;
  header.gave_back_ns.store(now, std::memory_order_relaxed);
  give_back(region, missing);
}

}  // namespace cube::cache
