// What the times of a file prove: is it the same version, and may it change again and keep them?
// Thread safety: pure functions.
#pragma once

#include "cache/record/file_stat.h"
#include "cache/record/record.h"

namespace cube::cache {

// The coarsest clocks of file systems have steps of this length (FAT).
inline constexpr std::int64_t k_racy_seconds = 2;

// A clock that tells whole milliseconds at most, as the ctime shows, which nobody can set: ext4
// with inodes of 128 bytes, FAT, HFS+, many servers. A finer clock shows whole milliseconds once in
// a million times, and is then taken for coarse.
inline bool has_coarse_clock(const FileStat& stat) {
  return stat.changed.nanoseconds % 1'000'000 == 0;
}

// Looked at at `wall_ns`: did the last step of the clock begin so late that another change may fall
// into it? A time in the future is of a clock that runs ahead. Nothing can be known of two clocks
// that differ the other way.
inline bool is_within_step(const FileTime& time, std::uint64_t wall_ns) {
  return static_cast<std::int64_t>(wall_ns / 1'000'000'000ULL) - time.seconds < k_racy_seconds;
}

// Neither mtime nor ctime would tell of a change right after the look.
inline bool may_hide_change(const FileStat& stat, std::uint64_t wall_ns) {
  return has_coarse_clock(stat) && is_within_step(stat.changed, wall_ns);
}

// Of the same path, the same bytes? Not by the device, whose number is another after each mount. By
// the ctime too: an mtime can be set back after a write (rsync -t, cp -p, touch -r).
inline bool is_same_version(const FileStat& a, const FileStat& b) {
  return a.inode == b.inode && a.size == b.size && a.modified == b.modified &&
         a.changed == b.changed && a.same_rights(b);
}

// Fetched so soon after the file was written that it may have been written again within the grain
// of its times: what the origin says of it later proves nothing.
inline bool may_be_racy(const Record& record) {
  return is_within_step(record.stat.modified, record.fetched_ns) ||
         may_hide_change(record.stat, record.fetched_ns);
}

}  // namespace cube::cache
