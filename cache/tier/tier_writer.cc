#include "cache/tier/tier_writer.h"

#include <algorithm>

#include "cache/base/clock.h"
#include "cache/record/directory_data.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

// Whether a later job can use the record. Gathered stats are too old by then. A listing is useful
// only if the times of the directory are reliable.
bool is_worth_keeping(const Record& record) {
  if (record.kind != RecordKind::directory) return record.kind == RecordKind::file;
  const auto data = DirectoryData::of(record);
  return data && data->has_true_times();
}

}  // namespace

bool TierWriter::has_news(std::uint32_t segment) const {
  const SegmentRow& row = region().segment_row(segment);
  const Note& note = notes_[segment];
  const std::uint32_t fresh = row.fresh.load(std::memory_order_acquire);
  return fresh != 0 && (fresh != note.seen || word_of(row).generation != note.generation);
}

void TierWriter::say_alive() {
  region().header().disk_alive_ns.store(base::coarse_monotonic_ns(), std::memory_order_relaxed);
}

std::uint32_t TierWriter::news() const {
  return region().header().disk_news.load(std::memory_order_seq_cst);
}

void TierWriter::wake() { tell_tier_writer(region().header()); }

void TierWriter::wait_for_news(std::uint32_t seen, std::uint64_t at_most_ns,
                               const std::function<bool()>& is_over) {
  RegionHeader& header = region().header();
  // If a process is killed here, the count stays too high, which costs only a few needless
  // wake-ups.
  header.disk_sleeps.fetch_add(1, std::memory_order_seq_cst);
  if (!is_over()) base::sys::futex_wait(&header.disk_news, seen, at_most_ns);
  header.disk_sleeps.fetch_sub(1, std::memory_order_relaxed);
}

void TierWriter::free_claims() {
  const bool has_chunks = region().header().has_chunks.load(std::memory_order_relaxed) != 0;
  if (ram_.ring().is_in_use() || has_chunks) region().reap();
}

void TierWriter::seal() {
  for (Tier* const tier : tiers_) tier->end_offers();
}

void note_status(RegionHeader& header, const Tier& tier) {
  const base::TierStatus status = tier.status();
  TierRow& row = header.tiers[tier.kind()];
  row.capacity.store(status.capacity, std::memory_order_relaxed);
  row.used.store(status.used, std::memory_order_relaxed);
  row.entries.store(status.entries, std::memory_order_relaxed);
  row.is_there.store(1, std::memory_order_relaxed);
}

void TierWriter::end() {
  region().header().disk_alive_ns.store(0, std::memory_order_seq_cst);
  ram_.ring().wake();
  blocks_.tell_waiting();
}

int TierWriter::write(std::uint32_t segment) {
  SegmentRow& row = region().segment_row(segment);
  Pin pin;
  std::uint32_t generation = 0;
  // Pins every segment, because even a segment outside the ring may be about to join it.
  if (!ram_.hold(segment, generation, pin)) return 0;
  const bool is_ring = row.is_ring.load(std::memory_order_acquire) != 0;
  Note& note = notes_[segment];
  if (note.generation != generation) note = {.generation = generation, .seen = 0, .written = {}};
  // Loads the count before it visits the records. If records are added later, the count differs at
  // the next pass.
  const std::uint32_t fresh = row.fresh.load(std::memory_order_acquire);
  // A segment may get further records while it is in the ring or open, or if it was sealed just
  // now.
  const bool grows = is_ring || word_of(row).state == SegmentState::open;
  std::vector<std::uint64_t> offsets, written;
  ram_.visit_segment(segment, [&](std::uint64_t offset, const Record& record) {
    if (!is_worth_keeping(record) || record.is_stale() || record.is_from_disk()) return;
    if (grows) written.push_back(offset);
    if (!std::binary_search(note.written.begin(), note.written.end(), offset))
      offsets.push_back(offset);
  });
  if (!offsets.empty()) {
    const std::byte* const start = region().segment(segment);
    // A run of segments continues after its first segment.
    const std::uint64_t bytes = region().layout().file_bytes - region().offset_of(start);
    for (Tier* const tier : tiers_) {
      if (const auto offered = tier->offer({start, bytes}, offsets); !offered)
        return offered.error().value;
    }
  }
  note.seen = fresh;
  note.written = std::move(written);
  // The release pairs with the acquire in Ring::is_awaited.
  row.flushed.store(fresh, std::memory_order_release);
  return 0;
}

int TierWriter::write_all(bool of_ring, const std::function<bool()>& may_go_on) {
  const RegionHeader& header = region().header();
  bool is_any = false;
  int error = 0;
  for (std::uint32_t i = 0; i < notes_.size() && error == 0; ++i) {
    const bool is_ring = region().segment_row(i).is_ring.load(std::memory_order_relaxed) != 0;
    if (is_ring != of_ring || !has_news(i)) continue;
    if (!of_ring) error = write_all(/*of_ring=*/true, may_go_on);
    if (error != 0 || !may_go_on()) break;
    error = write(i);
    if (error == 0) say_alive();
    is_any = true;
  }
  // seq_cst: either this load sees the waiter, or the waiter sees that segments can be reclaimed
  // now.
  if (of_ring && is_any && header.ring_waiting.load(std::memory_order_seq_cst) != 0)
    ram_.ring().wake();
  return error;
}

int TierWriter::write_blocks(const std::function<bool()>& may_go_on) {
  int error = 0;
  const auto written = blocks_.pass([&] { return error == 0 && may_go_on(); },
                                    [&] {
                                      say_alive();
                                      error = write_all(/*of_ring=*/true, may_go_on);
                                    });
  return written ? error : written.error().value;
}

base::Result<std::int64_t> TierWriter::pass(const std::function<bool()>& may_go_on) {
  if (!has_failed_) say_alive();
  int error = write_all(/*of_ring=*/true, may_go_on);
  if (error == 0) error = write_blocks(may_go_on);
  if (error == 0) error = write_all(/*of_ring=*/false, may_go_on);
  auto left = static_cast<std::int64_t>(blocks_.left());
  for (std::uint32_t i = 0; i < notes_.size(); ++i) {
    const std::uint32_t seen =
        word_of(region().segment_row(i)).generation == notes_[i].generation ? notes_[i].seen : 0;
    if (has_news(i)) left += region().segment_row(i).fresh.load(std::memory_order_relaxed) - seen;
  }
  for (const Tier* const tier : tiers_) {
    note_status(region().header(), *tier);
    region().header().tiers[tier->kind()].unwritten.store(static_cast<std::uint64_t>(left),
                                                          std::memory_order_relaxed);
  }
  has_failed_ = error != 0;
  if (!has_failed_) {
    say_alive();
    return left;
  }
  end();
  return base::fail(error);
}

}  // namespace cube::cache
