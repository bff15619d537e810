// PartialFill: keeps the parts of a file that were read, for the next open of the file.
#include "cache/base/process/block_signals.h"
#include "cache/fill/kept_parts.h"
#include "cache/fill/partial_fill.h"
#include "cache/fill/recent_misses.h"
#include "cache/record/recent_change.h"
#include "cache/region/fetch_scope.h"

namespace cube::cache {

bool PartialFill::may_have_kept() const {
  return KeptParts::may_be_any(cache_->region) &&
         is_noted_miss(cache_->region, hash_of_path_.load(std::memory_order_relaxed));
}

// Copies the kept parts of the file to the room.
void PartialFill::take_kept() {
  if (!may_have_kept()) return;
  const KeptParts kept(*cache_, record_->path(), record_->stat);
  for (std::uint32_t i = 0; i < part_count_; ++i) {
    const std::uint64_t from = begin_of(i);
    if (!kept.take(fetch().room() + from, from, begin_of(i + 1) - from)) continue;
    parts_[i].store(Part::here, std::memory_order_relaxed);
    missing_.fetch_sub(1, std::memory_order_relaxed);
  }
}

// Keeps the parts that are `here`, if there is room and a later open could use them.
void PartialFill::keep(int fd) {
  if (!has_read_.load(std::memory_order_relaxed)) return;
  KeptParts kept(*cache_, record_->path(), record_->stat);
  // A signal handler that has interrupted a fetch of this thread keeps nothing.
  if (FetchScope::is_open() || !kept.may_keep() || may_be_racy(*record_) ||
      !is_unchanged(fd, k_ask_server) || !fetch().is_unchanged())
    return;
  const base::BlockSignals block;
  if (!claim()) return;
  for (std::uint32_t i = 0; i < part_count_; ++i) {
    const std::uint64_t from = begin_of(i);
    if (parts_[i].load(std::memory_order_acquire) == Part::here &&
        !kept.keep(fetch().room() + from, from, begin_of(i + 1) - from))
      break;
  }
  end_claim(fd);
}

void PartialFill::drop_kept() {
  if (!may_have_kept()) return;
  const base::BlockSignals block;
  KeptParts(*cache_, record_->path(), record_->stat).drop();
}

}  // namespace cube::cache
