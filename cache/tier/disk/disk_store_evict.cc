// DiskStore: makes room by removing old segment files.
#include <cerrno>

#include "cache/tier/disk/disk_store.h"
#include "cache/tier/disk/segment_file.h"

namespace cube::cache {

namespace sys = base::sys;

// The callers of make_room, evict_one and evict must hold the directory's lock.
base::Result<void> DiskStore::make_room(std::uint64_t bytes) {
  while (true) {
    const auto room = directory_.room();
    if (!room) return base::fail(room.error().value);
    const std::uint64_t kept = room->total / 100 * options_.keep_free_percent;
    if (used_bytes() + bytes <= bound_ && room->available >= bytes + kept) return {};
    if (!evict_one()) return base::fail(ENOSPC);
  }
}

bool DiskStore::evict_one() {
  const DiskSegmentRow* oldest = nullptr;
  for (std::uint32_t i = 0; i < index_->geometry().row_count; ++i) {
    const DiskSegmentRow& row = index_->row(i);
    if (row.state() != DiskSegmentState::sealed) continue;
    // Keeps the files that this job uses. Otherwise, if the data is larger than the bound, an epoch
    // would evict each record before it is read again.
    const bool is_own = row.job.load(std::memory_order_relaxed) == options_.job ||
                        row.touched_job.load(std::memory_order_relaxed) == options_.job;
    if (is_own) continue;
    const auto age = [](const DiskSegmentRow& r) {
      return r.touched_s.load(std::memory_order_relaxed);
    };
    if (oldest == nullptr || age(row) < age(*oldest)) oldest = &row;
  }
  if (oldest == nullptr) return false;
  evict(oldest->number());
  return true;
}

void DiskStore::evict(std::uint32_t number) {
  DiskSegmentRow& row = index_->row_of(number);
  row.set(number, DiskSegmentState::leaving);
  const auto fd = directory_.open_segment(number, O_RDONLY);
  // Processes that have the file open can still read it.
  sys::unlink(directory_.path_of_segment(number).text);
  if (fd) {
    const auto contents = read_footer(fd->get(), number);
    for (std::size_t i = 0; contents && i < contents->rows.size(); ++i) {
      const DiskFooterRow& record = contents->rows[i];
      const std::uint64_t offset = std::uint64_t{record.offset} * k_record_alignment;
      index_->remove(record.path_hash, number, offset);
      index_->remove(record.inode_hash, number, offset);
    }
  }
  row.set(0, DiskSegmentState::free);
  evicted_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace cube::cache
