#include "cache/region/ring.h"

#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/region/index.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/segments.h"

namespace cube::cache {
// Decrements the count of unread records. True: no unread record is left. A bit is cleared before
// the count is decremented, and set after the count is incremented. So if a process is killed in
// between, the count is too high, never too low (see settle_count). The count does not fall below
// 0, even if give_up has already set it to 0.
bool Ring::count_down(std::uint32_t segment) {
  std::atomic<std::uint32_t>& unread = region_->segment_row(segment).unread;
  std::uint32_t left = unread.load(std::memory_order_relaxed);
  while (left != 0 && !unread.compare_exchange_weak(left, left - 1, std::memory_order_seq_cst)) {
  }
  return left <= 1;
}

bool Ring::clear_bit(const Record& record) {
  const std::uint64_t place = region_->offset_in_data(&record) / k_unread_grain;
  std::atomic<std::uint64_t>& word = region_->unread_bits()[place / 64];
  const std::uint64_t bit = 1ULL << (place % 64);
  if ((word.load(std::memory_order_relaxed) & bit) == 0) return false;
  if ((word.fetch_and(~bit, std::memory_order_acq_rel) & bit) == 0) return false;
  const bool was_last = count_down(segment_of(record));
  RegionHeader& header = region_->header();
  // seq_cst: either this load sees that the leader waits, or the leader sees that all records of
  // the segment have been read.
  if (was_last && header.ring_waiting.load(std::memory_order_seq_cst) != 0) wake();
  return true;
}

bool Ring::note_opened(const Record& record) { return clear_bit(record); }

bool Ring::want_again(const Record& record) {
  // Other records have no bit, because only the first open of a prefetched record is noted.
  if (!holds(record) || !record.is_prefetched()) return false;
  const std::uint64_t place = region_->offset_in_data(&record) / k_unread_grain;
  std::atomic<std::uint64_t>& word = region_->unread_bits()[place / 64];
  const std::uint64_t bit = 1ULL << (place % 64);
  if ((word.load(std::memory_order_relaxed) & bit) != 0) return false;
  note_published(record);
  return true;
}

bool Ring::settle_count(std::uint32_t segment) {
  if (is_being_filled(segment) || unread(segment) == 0 || is_pinned(segment)) return false;
  const std::uint64_t words = region_->layout().segment_bytes / k_unread_grain / 64;
  const std::atomic<std::uint64_t>* const bits = region_->unread_bits() + words * segment;
  const bool has_none = std::all_of(bits, bits + words, [](const auto& word) {
    return word.load(std::memory_order_acquire) == 0;
  });
  if (has_none) region_->segment_row(segment).unread.store(0, std::memory_order_seq_cst);
  return has_none;
}

void Ring::note_published(const Record& record) {
  const std::uint64_t place = region_->offset_in_data(&record) / k_unread_grain;
  region_->segment_row(segment_of(record)).unread.fetch_add(1, std::memory_order_relaxed);
  // Release: pairs with the fetch_and in clear_bit, whose caller has found the record through the
  // index.
  region_->unread_bits()[place / 64].fetch_or(1ULL << (place % 64), std::memory_order_release);
}

std::uint32_t Ring::segments_for(const RegionLayout& layout, std::uint64_t bytes) {
  // The ring has at least four segments if the region is large enough, so that one segment can be
  // filled while others are read.
  const std::uint32_t most = layout.segment_count / 2, fewest = std::min(most, 4U);
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(bytes / layout.segment_bytes, fewest, most));
}

void Ring::make(std::uint64_t bytes) {
  const std::uint32_t wanted = segments_for(region_->layout(), bytes);
  if (wanted == 0) return;
  std::uint32_t none = 0;
  region_->header().ring_segments.compare_exchange_strong(none, wanted, std::memory_order_seq_cst);
}

bool Ring::is_in_use() const {
  for (std::uint32_t segment = lowest_segment(); segment < end_segment(); ++segment) {
    if (owns(segment)) return true;
  }
  return false;
}

bool Ring::came_too_late() const {
  for (std::uint32_t segment = first_segment(); segment < end_segment(); ++segment) {
    if (owns(segment) || word_of(region_->segment_row(segment)).state == SegmentState::free)
      return false;
  }
  return is_made() && !is_in_use() && !can_join();
}

bool Ring::has_disk_writer() const { return is_tier_writer_alive(region_->header()); }

Filling Ring::filling() const { return filling_in(*region_, region_->header().ring_filling); }

bool Ring::is_open(const Filling& filling) const {
  return is_open_to_all(*region_, filling) && owns(filling.segment);
}

base::Result<void> Ring::next_filling(const Filling& full) {
  RegionHeader& header = region_->header();
  if (header.ring_filling.load(std::memory_order_seq_cst) != full.as_word()) return {};
  if (full.is_any) {
    next_ = full.segment + 1;
    tell_tier_writer(header);
  }
  auto leased = lease();
  // If no other segment can be leased, leases the same segment again, because the ring's other
  // segments may wait for their readers for a long time.
  if (!leased && full.is_any && is_spent(full.segment) && take_used_up(full.segment))
    leased = full.segment;
  if (!leased) {
    if (header.ring_filling.load(std::memory_order_seq_cst) != full.as_word()) return {};
    return base::fail(leased.error().value);
  }
  open_to_all(*region_, header.ring_filling, *leased, full);
  return {};
}

bool Ring::is_being_filled(std::uint32_t segment) const {
  const SegmentWord word = word_of(region_->segment_row(segment));
  return word.state == SegmentState::open && word.owner != k_no_owner;
}

bool Ring::is_unread(std::uint32_t segment, std::uint32_t generation, std::uint64_t offset) const {
  if (word_of(region_->segment_row(segment)).generation != generation) return false;
  const std::uint64_t place =
      (std::uint64_t{segment} * region_->layout().segment_bytes + offset) / k_unread_grain;
  return (region_->unread_bits()[place / 64].load(std::memory_order_acquire) >> (place % 64) & 1) !=
         0;
}

std::uint32_t Ring::give_up(std::uint32_t segment) {
  const std::uint64_t words = region_->layout().segment_bytes / k_unread_grain / 64;
  std::uint32_t dropped = 0;
  // Either this function or a reader clears a bit, so each record is counted only once.
  for (std::uint64_t i = 0; i < words; ++i) {
    std::atomic<std::uint64_t>& word = region_->unread_bits()[words * segment + i];
    if (word.load(std::memory_order_relaxed) == 0) continue;
    dropped +=
        static_cast<std::uint32_t>(std::popcount(word.exchange(0, std::memory_order_acq_rel)));
  }
  region_->segment_row(segment).unread.store(0, std::memory_order_seq_cst);
  return dropped;
}

void Ring::wake() {
  RegionHeader& header = region_->header();
  header.ring_wakeups.fetch_add(1, std::memory_order_seq_cst);
  base::sys::futex_wake_all(&header.ring_wakeups);
}

bool Ring::wait_for_room(std::uint64_t at_most_ns) {
  RegionHeader& header = region_->header();
  const std::uint32_t seen = header.ring_wakeups.load(std::memory_order_seq_cst);
  header.ring_waiting.store(1, std::memory_order_seq_cst);
  // A process that closes a file does not wake the leader. So if pins of open files hold segments,
  // the leader waits only for this time.
  constexpr std::uint64_t k_until_closed_ns = 500'000;
  bool is_pinned = false;
  const bool has_none = room(&is_pinned) == 0;
  if (has_none)
    base::sys::futex_wait(&header.ring_wakeups, seen, is_pinned ? k_until_closed_ns : at_most_ns);
  header.ring_waiting.store(0, std::memory_order_relaxed);
  return has_none;
}

}  // namespace cube::cache
