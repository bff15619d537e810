// DiskStore: appends records, and seals segment files.
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/mutex_guard.h"
#include "cache/record/record_hash.h"
#include "cache/tier/disk/disk_store.h"

namespace cube::cache {

namespace sys = base::sys;

namespace {

constexpr std::uint64_t k_try_again_ns = 10'000'000'000;

bool is_gone(int error) { return error == ENOENT || error == ESTALE; }

}  // namespace

base::Result<DiskAppended> DiskStore::append(std::span<const std::byte> segment,
                                             std::span<const std::uint64_t> offsets) {
  if (is_private_) return base::fail(EROFS);
  const base::MutexGuard guard(&mutex_);
  try {
    if (!index_->is_there()) return base::fail(EIO);
    DiskAppended appended;
    batch_.clear();
    batch_bytes_ = 0;
    for (const std::uint64_t offset : offsets) {
      if (offset % k_record_alignment != 0 || offset > segment.size() ||
          segment.size() - offset < sizeof(Record)) {
        ++appended.refused;
        continue;
      }
      const auto& record = *reinterpret_cast<const Record*>(segment.data() + offset);
      const bool is_sound =
          header_is_sound(record, segment.size() - offset) && is_kept_on_disk(record.kind);
      const std::uint64_t bytes = is_sound ? record.record_size : 0;
      if (!is_sound || bytes % k_record_alignment != 0 || bytes > largest_record()) {
        ++appended.refused;
        continue;
      }
      if (record.is_stale()) {
        ++appended.stale;
        continue;
      }
      bool replaces = false;
      if (has_it(record, replaces)) {
        ++appended.there_already;
        continue;
      }
      if (!writer_ || !writer_->fits(batch_bytes_ + bytes, batch_.size() + 1)) {
        if (const auto written = write(appended); !written)
          return base::fail(written.error().value);
        if (const auto next = next_segment(); !next) return base::fail(next.error().value);
      }
      batch_.push_back({&record, replaces});
      batch_bytes_ += bytes;
    }
    if (const auto written = write(appended); !written) return base::fail(written.error().value);
    return appended;
  } catch (...) {
    return base::fail(ENOMEM);
  }
}

// Writes the batch. Records that are adjacent in the RAM segment are one part of the write.
base::Result<void> DiskStore::write(DiskAppended& appended) {
  if (batch_.empty()) return {};
  std::vector<iovec> parts;
  const std::byte* end = nullptr;
  for (const Candidate& candidate : batch_) {
    const auto* const begin = reinterpret_cast<const std::byte*>(candidate.record);
    const std::uint64_t bytes = candidate.record->record_size;
    if (begin == end) {
      parts.back().iov_len += bytes;
    } else {
      parts.push_back({const_cast<std::byte*>(begin), bytes});
    }
    end = begin + bytes;
  }
  std::uint64_t offset = writer_->data_end();
  const auto batch = std::exchange(batch_, {});
  batch_bytes_ = 0;
  if (const auto written = writer_->append(directory_, parts); !written) {
    const int error = written.error().value;
    end_segment();
    note_full(error);
    return base::fail(error);
  }
  for (const Candidate& candidate : batch) {
    ++(publish(candidate, offset) ? appended.written : appended.refused);
    offset += candidate.record->record_size;
  }
  return {};
}

bool DiskStore::publish(const Candidate& candidate, std::uint64_t offset) {
  const Record& record = *candidate.record;
  DiskFooterRow row = footer_row(record, offset);
  const std::uint32_t number = writer_->number();
  const std::uint64_t word = DiskIndex::word_of(row.path_hash, number, offset, record.record_size);
  const auto add = [&](std::uint64_t hash, std::uint64_t entry) {
    if (index_->insert(hash, entry)) return true;
    const auto lock = directory_.lock(DiskDirectory::k_wait_for_lock_ms);
    return lock && insert(hash, entry);
  };
  // Adds the entry by path first, as a tentative entry, which only changes find. So whenever there
  // is an entry by inode, there is also an entry by path.
  bool shown = add(row.path_hash, word | DiskIndex::k_tentative);
  if (shown && row.has_inode())
    shown =
        add(row.inode_hash, DiskIndex::word_of(row.inode_hash, number, offset, record.record_size));
  // A thread that changes the file marks the record in RAM before it searches the index. So either
  // that thread finds the entry, or this thread sees the mark.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  shown = shown && !record.is_stale() && index_->confirm(row.path_hash, word);
  if (!shown) {
    index_->remove(row.path_hash, number, offset);
    if (row.has_inode()) index_->remove(row.inode_hash, number, offset);
    row.state = 1;
  }
  writer_->add_row(row);
  DiskSegmentRow& segment = index_->row_of(number);
  segment.records.fetch_add(1, std::memory_order_relaxed);
  if (!shown) {
    segment.dropped.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (candidate.replaces) {
    index_->visit(row.path_hash, [&](const DiskPlace& place, std::uint64_t) {
      if (place.number != number || place.offset != offset) drop(place, record.path());
    });
  }
  return true;
}

base::Result<void> DiskStore::seal(bool durable) {
  const base::MutexGuard guard(&mutex_);
  try {
    return end_segment(durable);
  } catch (...) {
    return base::fail(ENOMEM);
  }
}

void DiskStore::forget_writer() {
  if (writer_) writer_->forget();
  writer_.reset();
  mutex_ = PTHREAD_MUTEX_INITIALIZER;
}

void DiskStore::abandon() {
  // Makes only system calls, because another thread of the parent may have held the allocator's
  // lock at the fork.
  if (writer_) writer_->forget();
  static_cast<void>(writer_.release());
  index_->unmap();
}

base::Result<void> DiskStore::end_segment(bool durable) {
  if (!writer_) return {};
  const auto sealed = writer_->seal(directory_, durable && options_.is_durable);
  const std::uint32_t number = writer_->number();
  DiskSegmentRow& row = index_->row_of(number);
  if (sealed && index_->is_there() && row.number() == number) {
    row.pages.store(static_cast<std::uint32_t>((*sealed + k_page - 1) / k_page),
                    std::memory_order_relaxed);
    row.set(number, DiskSegmentState::sealed);
  }
  // If the footer could not be written, the next process that opens the directory recovers the
  // file. If the file is gone, its row is free.
  if (!sealed && is_gone(sealed.error().value) && row.number() == number)
    row.set(0, DiskSegmentState::free);
  writer_.reset();
  if (!sealed) return base::fail(sealed.error().value);
  return {};
}

void DiskStore::note_full(int error) {
  if (error == ENOSPC || error == EDQUOT) full_until_ns_ = base::monotonic_ns() + k_try_again_ns;
  if (reported_full_.exchange(true, std::memory_order_relaxed)) return;
  if (error == ENOSPC || error == EDQUOT) {
    base::log(
        base::LogLevel::warn,
        "{} is full ({} MiB, CUBESHIM_DISK allows {} MiB): nothing is added until there is room",
        directory_.path(), used_bytes() >> 20, bound_ >> 20);
  } else {
    base::log(base::LogLevel::warn, "cannot write to {}: {}", directory_.path(),
              base::text_of_error(error));
  }
}

base::Result<void> DiskStore::next_segment() {
  if (base::monotonic_ns() < full_until_ns_) return base::fail(ENOSPC);
  if (const auto ended = end_segment(); !ended && !is_gone(ended.error().value)) {
    note_full(ended.error().value);
    return ended;
  }
  auto created = create_segment();
  if (!created) {
    note_full(created.error().value);
    return base::fail(created.error().value);
  }
  writer_ = std::make_unique<SegmentWriter>(std::move(*created));
  reported_full_.store(false, std::memory_order_relaxed);
  return {};
}

base::Result<SegmentWriter> DiskStore::create_segment() {
  const auto lock = directory_.lock(DiskDirectory::k_wait_for_lock_ms);
  if (!lock) return base::fail(lock.error().value);
  if (const auto room = make_room(segment_bytes_); !room) return base::fail(room.error().value);
  auto& next = index_->header().next_number;
  for (std::uint32_t tries = 0; tries < 2 * index_->geometry().row_count; ++tries) {
    std::uint32_t number = next.load(std::memory_order_relaxed);
    if (number == 0 || number > k_most_disk_number) number = 1;
    next.store(number + 1, std::memory_order_relaxed);
    DiskSegmentRow& row = index_->row_of(number);
    if (row.state() != DiskSegmentState::free) continue;
    auto writer = SegmentWriter::create(directory_, number, segment_bytes_, options_.job);
    if (!writer && writer.error().value == EEXIST) continue;
    if (!writer && writer.error().value == ENOSPC && evict_one()) continue;
    if (!writer) return writer;
    row.job.store(options_.job, std::memory_order_relaxed);
    row.touched_job.store(options_.job, std::memory_order_relaxed);
    row.touched_s.store(static_cast<std::uint32_t>(base::read_clock(CLOCK_REALTIME).tv_sec),
                        std::memory_order_relaxed);
    row.pages.store(static_cast<std::uint32_t>(segment_bytes_ / k_page), std::memory_order_relaxed);
    row.records.store(0, std::memory_order_relaxed);
    row.dropped.store(0, std::memory_order_relaxed);
    row.set(number, DiskSegmentState::open);
    return writer;
  }
  return base::fail(ENOSPC);
}

}  // namespace cube::cache
