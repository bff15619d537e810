// Decides what the times of a file prove: whether two stats describe the same version, and whether
// another change of the file could leave its times as they are. Thread safety: pure functions.
#pragma once

#include "cache/record/file_stat.h"
#include "cache/record/record.h"

namespace cube::cache {

// The longest step between two times that a file system can store (FAT).
inline constexpr std::int64_t k_racy_seconds = 2;

// Whether the file's times have steps of a millisecond or more (ext4 with inodes of 128 bytes, FAT,
// HFS+, many servers). The ctime shows the step, because no program can set the ctime. If the steps
// are finer, one ctime in a million is a whole number of milliseconds by chance, and the result is
// wrongly true.
inline bool has_coarse_clock(const FileStat& stat) {
  return stat.changed.nanoseconds % 1'000'000 == 0;
}

// Whether another change at `wall_ns` could get the same time as a change at `time`. Also true if
// `time` is in the future. The file system's clock then runs ahead. A clock that runs behind cannot
// be detected.
inline bool is_within_step(const FileTime& time, std::uint64_t wall_ns) {
  return static_cast<std::int64_t>(wall_ns / 1'000'000'000ULL) - time.seconds < k_racy_seconds;
}

// Whether a change right after `wall_ns` could leave both mtime and ctime unchanged.
inline bool may_hide_change(const FileStat& stat, std::uint64_t wall_ns) {
  return has_coarse_clock(stat) && is_within_step(stat.changed, wall_ns);
}

// Whether two stats of one path describe the same bytes. The device is not compared, because its
// number differs from mount to mount. The ctime is compared, because an mtime can be set back after
// a write (rsync -t, cp -p, touch -r).
inline bool is_same_version(const FileStat& a, const FileStat& b) {
  return a.inode == b.inode && a.size == b.size && a.modified == b.modified &&
         a.changed == b.changed && a.same_rights(b);
}

// Whether the record was fetched so soon after a write that another write may have left the file's
// times unchanged. If so, a later stat of the origin proves nothing. Never true for objects: their
// stat contains a mark of the ETag, which differs after each write.
inline bool may_be_racy(const Record& record) {
  return record.is_in_kernel() && (is_within_step(record.stat.modified, record.fetched_ns) ||
                                   may_hide_change(record.stat, record.fetched_ns));
}

}  // namespace cube::cache
