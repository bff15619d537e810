// RamTier: reserves room for records. A process leases a segment for its resident records. The
// leader also leases a segment of the ring. All processes share another segment of the ring, and a
// segment for metadata.
#include <algorithm>
#include <cerrno>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/mutex_guard.h"
#include "cache/region/lanes.h"
#include "cache/region/large/chunks.h"
#include "cache/region/ram/ram_window.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

// The rest of a segment is worth leasing to another process only if the rest has room for a small
// file.
constexpr std::uint64_t k_worth_leasing = 64 << 10;

// The pause after a lack of memory. The pause is short, because memory may soon be available again.
constexpr std::uint32_t k_until_memory_seconds = 3;

std::uint32_t seconds_now() {
  return static_cast<std::uint32_t>(base::coarse_monotonic_ns() / 1'000'000'000ULL);
}
bool is_before(std::uint32_t until) { return until != 0 && seconds_now() < until; }

// An upper limit of the record's size, wherever the free part of the segment begins.
std::uint64_t most_bytes(std::size_t path_length, std::uint64_t data_size) {
  return plan_record(0, path_length, data_size, RecordShape::mappable).end + 2 * k_page;
}

}  // namespace

std::byte* RamTier::Reservation::data() const { return window_->mapping.data() + plan_.data; }

RamTier::Reservation::~Reservation() {
  if (window_ == nullptr || published_) return;
  const base::MutexGuard guard(&tier_->mutex_);
  SegmentRow& row = tier_->region_->segment_row(window_->segment);
  if (window_->count > 1) {
    // A sealed run may have been published, so another process may have seen its entry in the
    // index.
    const auto head = SegmentWord::of_word(row.word.load(std::memory_order_acquire));
    if (head.state == SegmentState::open) free_run(*tier_->region_, window_->segment);
    return;
  }
  // Only the last reservation in the segment can be undone, even by a process that no longer leases
  // the segment. Any other reservation leaves a hole, which does no harm, because readers use the
  // index.
  auto last = static_cast<std::uint32_t>(plan_.end);
  row.fill.compare_exchange_strong(last, static_cast<std::uint32_t>(fill_before_),
                                   std::memory_order_acq_rel);
}

bool RamTier::Reservation::can_be_undone() const {
  const SegmentRow& row = tier_->region_->segment_row(window_->segment);
  return window_->count > 1 ||
         row.fill.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(plan_.end);
}

void RamTier::Reservation::abandon() {
  if (window_ != nullptr) window_->mapping.reset();
  claim_.forget();
}

// Keeps the windows in a list. Without a reference, a leak checker would report them as leaks of
// the program.
void RamTier::keep_for_ever(std::shared_ptr<Window> window) {
  struct Kept {
    std::shared_ptr<Window> window;
    Kept* next = nullptr;
  };
  static constinit std::atomic<Kept*> all{nullptr};
  auto* const kept = new (std::nothrow) Kept{std::move(window)};
  if (kept == nullptr) return;
  kept->next = all.exchange(kept, std::memory_order_acq_rel);
}

void RamTier::Reservation::lose() {
  if (window_ == nullptr) return;
  // Keeps the mapping and the pin until this process dies. While there is a pin, detach() keeps the
  // slot and all leases. The slot is reaped when the kernel has freed the memory of this process.
  if (!has_claim_) pin_segment(*tier_->region_, window_->segment);
  keep_for_ever(std::move(window_));
  claim_.forget();
}

base::Result<std::shared_ptr<RamTier::Window>> RamTier::open_window(std::uint32_t segment,
                                                                    std::uint32_t count) {
  const RegionLayout& layout = region_->layout();
  auto mapping = region_->window(std::uint64_t{layout.segment_bytes} * segment,
                                 std::size_t{layout.segment_bytes} * count);
  if (!mapping) return base::fail(mapping.error().value);
  std::shared_ptr<Window> window;
  try {
    window = std::make_shared<Window>();
  } catch (...) {
    return base::fail(ENOMEM);
  }
  window->mapping = std::move(*mapping);
  window->segment = segment;
  window->count = count;
  return window;
}

void RamTier::let_go_of_window(Pool pool) {
  std::shared_ptr<Window>& window = window_of(pool);
  if (window == nullptr) return;
  const std::uint64_t left =
      region_->layout().segment_bytes -
      region_->segment_row(window->segment).fill.load(std::memory_order_relaxed);
  if (pool == Pool::resident && left >= k_worth_leasing) {
    cube::cache::release_lease(*region_, window->segment);
  } else {
    seal_segment(*region_, window->segment);
    tell_tier_writer(region_->header());
  }
  window.reset();
}

base::Result<void> RamTier::show_window(Pool pool, std::uint32_t segment) {
  std::shared_ptr<Window>& window = window_of(pool);
  if (window != nullptr && window->segment == segment) return {};
  auto opened = open_window(segment, 1);
  if (!opened) return base::fail(opened.error().value);
  window = std::move(*opened);
  return {};
}

base::Result<void> RamTier::next_segment(Pool pool, std::uint64_t bytes) {
  // Leases the next segment first. If there is none, the current segment is kept, because small
  // files may still fit into it.
  const auto next = pool == Pool::ring ? ring_.lease() : lease_segment(*region_, bytes);
  if (!next) return base::fail(next.error().value);
  let_go_of_window(pool);
  auto window = open_window(*next, 1);
  if (!window) {
    cube::cache::release_lease(*region_, *next);
    return base::fail(window.error().value);
  }
  window_of(pool) = std::move(*window);
  // The tiers' writer prepares the next segment.
  if (pool == Pool::resident) tell_tier_writer(region_->header());
  return {};
}

base::Result<RamTier::Reservation> RamTier::reserve_run(std::size_t path_length,
                                                        std::uint64_t data_size) {
  const RecordPlan plan = plan_record(0, path_length, data_size);
  const std::uint64_t segment_bytes = region_->layout().segment_bytes;
  const auto count = static_cast<std::uint32_t>((plan.end + segment_bytes - 1) / segment_bytes);
  if (count > region_->layout().segment_count) return base::fail(ENOSPC);
  const auto first = lease_run(*region_, count);
  if (!first) return base::fail(first.error().value);
  auto window = open_window(*first, count);
  if (!window) {
    free_run(*region_, *first);
    return base::fail(window.error().value);
  }
  Reservation reservation;
  reservation.window_ = std::move(*window);
  reservation.plan_ = plan;
  reservation.tier_ = this;
  return reservation;
}

base::Result<RamTier::Reservation> RamTier::reserve(std::size_t path_length,
                                                    std::uint64_t data_size, RecordShape shape) {
  if (data_size >= region_->layout().file_bytes) return base::fail(ENOSPC);
  const bool is_run = plan_record(0, path_length, data_size).end > region_->layout().segment_bytes;
  const auto reserve = [&] {
    return is_run ? reserve_run(path_length, data_size)
                  : reserve_in_segment({path_length, data_size, shape, Pool::resident});
  };
  auto reservation = reserve();
  if (!reservation && reservation.error().value == ENOSPC && Chunks(*region_).free_kept_segments())
    reservation = reserve();
  if (is_run) return reservation;
  if (!reservation && reservation.error().value != EBUSY) set_full(reservation.error().value);
  return reservation;
}

base::Result<RamTier::Reservation> RamTier::reserve_in_ring(std::size_t path_length,
                                                            std::uint64_t data_size) {
  const std::uint64_t segment_bytes = region_->layout().segment_bytes;
  if (data_size >= segment_bytes || most_bytes(path_length, data_size) > segment_bytes)
    return base::fail(EFBIG);
  return reserve_in_segment({path_length, data_size, RecordShape::compact, Pool::ring});
}

base::Result<RamTier::Reservation> RamTier::reserve_in_segment(const RecordNeeds& needs) {
  const std::uint64_t segment_bytes = region_->layout().segment_bytes;
  const base::MutexGuard guard(&mutex_);
  if (!guard) return base::fail(EBUSY);
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (const auto& window = window_of(needs.pool); window != nullptr) {
      SegmentRow& row = region_->segment_row(window->segment);
      const std::uint64_t fill = row.fill.load(std::memory_order_relaxed);
      const RecordPlan plan = plan_record(fill, needs.path_length, needs.data_size, needs.shape);
      if (plan.end <= segment_bytes) {
        // The fill includes all reservations. If this process dies, the process that takes over the
        // segment writes behind all of them.
        auto expected = static_cast<std::uint32_t>(fill);
        if (!row.fill.compare_exchange_strong(expected, static_cast<std::uint32_t>(plan.end),
                                              std::memory_order_acq_rel))
          continue;
        if (needs.pool == Pool::resident)
          room_.store(segment_bytes - plan.end, std::memory_order_relaxed);
        Reservation reservation;
        reservation.window_ = window;
        reservation.plan_ = plan;
        reservation.fill_before_ = fill;
        reservation.tier_ = this;
        // Pins the segment, because the segment may join the ring when this process no longer
        // leases it.
        reservation.claim_ = Pin(pin_segment(*region_, window->segment), nullptr);
        reservation.has_claim_ = true;
        return reservation;
      }
    }
    const auto next = next_segment(
        needs.pool, std::min(most_bytes(needs.path_length, needs.data_size), segment_bytes));
    if (!next) return base::fail(next.error().value);
  }
  return base::fail(ENOSPC);
}

template <typename Room, typename Next>
base::Result<RamTier::Reservation> RamTier::reserve_where_all_fill(Pool pool, const Room& room,
                                                                   std::size_t path_length,
                                                                   std::uint64_t data_size,
                                                                   Next&& next) {
  const std::uint64_t segment_bytes = region_->layout().segment_bytes;
  const base::MutexGuard guard(&mutex_);
  if (!guard) return base::fail(EBUSY);
  for (int attempt = 0; attempt < 4; ++attempt) {
    const Filling filling = room.filling();
    // Pins the segment first, then checks it. From here on, the segment is not reclaimed, even if
    // another process closes it.
    if (Pin claim(filling.is_any ? pin_segment(*region_, filling.segment) : nullptr, nullptr);
        filling.is_any && room.is_open(filling)) {
      if (const auto shown = show_window(pool, filling.segment); !shown)
        return base::fail(shown.error().value);
      SegmentRow& row = region_->segment_row(filling.segment);
      std::uint32_t fill = row.fill.load(std::memory_order_relaxed);
      RecordPlan plan = plan_record(fill, path_length, data_size, RecordShape::compact);
      while (plan.end <= segment_bytes &&
             !row.fill.compare_exchange_weak(fill, static_cast<std::uint32_t>(plan.end),
                                             std::memory_order_acq_rel)) {
        plan = plan_record(fill, path_length, data_size, RecordShape::compact);
      }
      if (plan.end <= segment_bytes) {
        Reservation reservation;
        reservation.window_ = window_of(pool);
        reservation.plan_ = plan;
        reservation.fill_before_ = fill;
        reservation.tier_ = this;
        reservation.claim_ = std::move(claim);
        reservation.has_claim_ = true;
        return reservation;
      }
    }
    if (const auto moved = next(filling); !moved) return base::fail(moved.error().value);
  }
  return base::fail(ENOSPC);
}

base::Result<RamTier::Reservation> RamTier::reserve_shared(std::size_t path_length,
                                                           std::uint64_t data_size) {
  const std::uint64_t segment_bytes = region_->layout().segment_bytes;
  if (data_size >= segment_bytes || most_bytes(path_length, data_size) > segment_bytes)
    return base::fail(ENOSPC);
  return reserve_where_all_fill(Pool::shared, ring_, path_length, data_size,
                                [&](const Filling& full) { return ring_.next_filling(full); });
}

// True if the segment has no living record, if more than half of the segment is dead, or if no
// living record was verified since `used_since_ns`.
bool RamTier::may_drop_metadata(std::uint32_t segment, std::uint64_t used_since_ns) const {
  Pin claim;
  std::uint32_t generation = 0;
  if (!hold(segment, generation, claim)) return false;
  std::uint64_t living = 0, last_used = 0;
  visit_segment(segment, [&](std::uint64_t, const Record& record) {
    if (record.is_stale()) return;
    living += record.record_size;
    last_used = std::max(last_used, record.verified_ns.load(std::memory_order_relaxed));
  });
  return living == 0 ||
         living * 2 < region_->segment_row(segment).fill.load(std::memory_order_relaxed) ||
         last_used < used_since_ns;
}

base::Result<RamTier::Reservation> RamTier::reserve_for_metadata(std::size_t path_length,
                                                                 std::uint64_t data_size,
                                                                 const MetadataLimits& limits) {
  const std::uint64_t segment_bytes = region_->layout().segment_bytes;
  if (data_size >= segment_bytes || most_bytes(path_length, data_size) > segment_bytes)
    return base::fail(EFBIG);
  return reserve_where_all_fill(
      Pool::names, metadata_room_, path_length, data_size, [&](const Filling& full) {
        return metadata_room_.next_filling(full, limits.segments, [&](std::uint32_t segment) {
          return may_drop_metadata(segment, limits.used_since_ns);
        });
      });
}

void RamTier::prepare_shared() {
  const base::MutexGuard guard(&mutex_);
  if (const Filling filling = ring_.filling(); guard && !filling.is_any)
    static_cast<void>(ring_.next_filling(filling));
}

std::uint64_t RamTier::ring_room() {
  const base::MutexGuard guard(&mutex_);
  const auto& window = window_of(Pool::ring);
  const std::uint64_t left =
      !guard || window == nullptr
          ? 0
          : region_->layout().segment_bytes -
                region_->segment_row(window->segment).fill.load(std::memory_order_relaxed);
  return left + ring_.room();
}

bool RamTier::is_full() const {
  const RegionHeader& header = region_->header();
  const std::uint32_t index_full = header.index_full.load(std::memory_order_relaxed);
  if (index_full == RegionHeader::k_for_good || is_before(index_full)) return true;
  const std::uint32_t until = header.full_until.load(std::memory_order_relaxed);
  return room_.load(std::memory_order_relaxed) < k_worth_leasing && is_before(until);
}

void RamTier::set_full(int error) {
  // After ENOSPC, the pause is longer, because a full region usually stays full until a process
  // leaves.
  region_->header().full_until.store(
      seconds_now() + (error == ENOSPC ? 30 : k_until_memory_seconds), std::memory_order_relaxed);
}

// Prevents fetches while the index gets no memory, because a file that cannot be published is read
// twice.
void RamTier::note_index_error(int error) {
  if (error == EMLINK || error == EAGAIN) return;
  region_->header().index_full.store(
      error == ENOSPC ? RegionHeader::k_for_good : seconds_now() + k_until_memory_seconds,
      std::memory_order_relaxed);
}

void RamTier::release_lease() {
  const base::MutexGuard guard(&mutex_);
  if (!guard) return;
  if (const auto& window = window_of(Pool::resident); window != nullptr)
    cube::cache::release_lease(*region_, window->segment);
  window_of(Pool::resident).reset();
  window_of(Pool::shared).reset();
  window_of(Pool::names).reset();
  let_go_of_window(Pool::ring);
}

void RamTier::release_ring_lease() {
  const base::MutexGuard guard(&mutex_);
  if (guard) let_go_of_window(Pool::ring);
}

void RamTier::abandon() {
  for (const auto& window : windows_) {
    if (window != nullptr) window->mapping.reset();
  }
}

}  // namespace cube::cache
