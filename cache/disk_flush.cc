#include "cache/disk_flush.h"

#include <algorithm>
#include <iterator>

#include "cache/ram/segments.h"

namespace cube::cache {

DiskFlush::DiskFlush(FileCache& cache)
    : cache_(cache), notes_(cache.region().layout().segment_count), counts_(cache.region().layout().segment_count) {
  next_ = notes_.size();
}

bool DiskFlush::collect(const std::function<bool()>& may_go_on) {
  const Region& region = cache_.region();
  bool is_any = false;
  for (std::uint32_t i = 0; i < notes_.size(); ++i) {
    const SegmentRow& row = region.segment_row(i);
    // Before the look into the index, so that what comes later is seen by the next pass; and before the look at the ring, whose
    // segments may be used anew while they are written.
    const std::uint32_t records = row.records.load(std::memory_order_acquire);
    counts_[i] = row.is_ring.load(std::memory_order_relaxed) != 0 ? notes_[i].seen : records;
    is_any = is_any || counts_[i] != notes_[i].seen;
  }
  if (!is_any) return false;
  // Nothing is pinned after the time is over: the process may have given its row of pins to another by then.
  cache_.ram().visit_all([&](std::uint32_t segment) { return counts_[segment] != notes_[segment].seen && may_go_on(); },
                         [&](std::uint32_t segment, const Record& record) {
                           // What came from there would be found to be there already, at the price of a read for each.
                           if (record.is_stale() || record.is_from_disk()) return;
                           const auto* const at = reinterpret_cast<const std::byte*>(&record);
                           notes_[segment].offsets.push_back(static_cast<std::uint64_t>(at - region.segment(segment)));
                         });
  for (Note& note : notes_) {
    // Each is found by its path and by its inode.
    std::sort(note.offsets.begin(), note.offsets.end());
    note.offsets.erase(std::unique(note.offsets.begin(), note.offsets.end()), note.offsets.end());
    if (note.written.empty()) continue;
    std::vector<std::uint64_t> left;
    std::set_difference(note.offsets.begin(), note.offsets.end(), note.written.begin(), note.written.end(),
                        std::back_inserter(left));
    note.offsets = std::move(left);
  }
  next_ = 0;
  return true;
}

int DiskFlush::write_next() {
  const auto i = static_cast<std::uint32_t>(next_);
  Note& note = notes_[i];
  const Region& region = cache_.region();
  if (!note.offsets.empty()) {
    const std::byte* const segment = region.segment(i);
    // A run goes on behind its first segment.
    const std::uint64_t bytes = region.layout().file_bytes - region.offset_of(segment);
    const auto appended = cache_.disk()->store().append({segment, bytes}, note.offsets);
    if (!appended) return appended.error().value;
  }
  ++next_;
  note.seen = counts_[i];
  const auto state = SegmentWord::unpack(region.segment_row(i).word.load(std::memory_order_relaxed)).state;
  if (state == SegmentState::open) {
    note.written.insert(note.written.end(), note.offsets.begin(), note.offsets.end());
    std::sort(note.written.begin(), note.written.end());
  } else {
    note.written = {};
  }
  note.offsets = {};
  return 0;
}

std::int64_t DiskFlush::end_pass() {
  std::int64_t left = 0;
  for (; next_ < notes_.size(); ++next_) {
    left += static_cast<std::int64_t>(notes_[next_].offsets.size());
    notes_[next_].offsets = {};
  }
  cache_.disk()->tell(cache_.region().header());
  cache_.region().header().disk_unwritten.store(static_cast<std::uint64_t>(left), std::memory_order_relaxed);
  return left;
}

}  // namespace cube::cache
