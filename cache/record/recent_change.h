// Decides what the times of a file prove: whether two stats are of one version, and whether the
// file may change again without a change of its times. Thread safety: pure functions.
#pragma once

#include "cache/record/file_stat.h"
#include "cache/record/record.h"

namespace cube::cache {

// The longest tick of a file system's clock (FAT).
inline constexpr std::int64_t k_racy_seconds = 2;

// Whether the file's clock counts in milliseconds or coarser units: ext4 with inodes of 128 bytes,
// FAT, HFS+, many servers. The ctime shows this, because no program can set it. One in a million
// times of a finer clock is a whole number of milliseconds, and such a time counts as coarse.
inline bool has_coarse_clock(const FileStat& stat) {
  return stat.changed.nanoseconds % 1'000'000 == 0;
}

// Whether another change at `wall_ns` could fall into the same tick of the clock as `time`. True
// for a time in the future, which is that of a clock that runs ahead. A clock that runs behind
// cannot be detected.
inline bool is_within_step(const FileTime& time, std::uint64_t wall_ns) {
  return static_cast<std::int64_t>(wall_ns / 1'000'000'000ULL) - time.seconds < k_racy_seconds;
}

// Whether a change right after `wall_ns` could leave both mtime and ctime as they are.
inline bool may_hide_change(const FileStat& stat, std::uint64_t wall_ns) {
  return has_coarse_clock(stat) && is_within_step(stat.changed, wall_ns);
}

// Whether two stats of one path are of the same bytes. The device is not compared, because each
// mount gives it another number. The ctime is compared, because an mtime can be set back after a
// write (rsync -t, cp -p, touch -r).
inline bool is_same_version(const FileStat& a, const FileStat& b) {
  return a.inode == b.inode && a.size == b.size && a.modified == b.modified &&
         a.changed == b.changed && a.same_rights(b);
}

// Whether the record was fetched so soon after a write that another write may have left the file's
// times as they are. A later stat of the origin then proves nothing. The stat of an object holds a
// mark of its ETag, which differs after each write.
inline bool may_be_racy(const Record& record) {
  return record.is_in_kernel() && (is_within_step(record.stat.modified, record.fetched_ns) ||
                                   may_hide_change(record.stat, record.fetched_ns));
}

}  // namespace cube::cache
