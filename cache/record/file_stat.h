// The origin's stat of a file, in the fixed form of records, and its conversion from and to the
// kernel's structures. Thread safety: plain values.
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "cache/base/sys.h"

namespace cube::cache {

struct FileTime {
  std::int64_t seconds;
  std::uint32_t nanoseconds;
  std::uint32_t reserved;
  friend bool operator==(const FileTime&, const FileTime&) = default;
};

struct FileStat {
  std::uint64_t inode, size, blocks;
  std::uint64_t attributes, attributes_mask, mount_id;
  std::uint32_t mode, links, user, group;
  std::uint32_t device_major, device_minor, special_major, special_minor;
  std::uint32_t block_size, mask;
  FileTime accessed, modified, changed, born;

  // All fields that a later fstat or statx of the program can request.
  static constexpr unsigned k_request = STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID;

  static FileStat from(const struct ::statx& x);
  static FileStat from(const struct ::stat& st);
  void copy_to(struct ::stat& st) const;
  // Whether a statx with this mask can be answered exactly as the kernel would answer it. The mask
  // must request both mtime and ctime. If a time is not requested, newer kernels omit the time, but
  // older kernels fill it in.
  static bool answers(unsigned requested) {
    constexpr unsigned k_times = STATX_MTIME | STATX_CTIME;
    return (requested & ~k_request) == 0 && (requested & k_times) == k_times;
  }
  // answers(requested) must be true.
  void copy_to(struct ::statx& x, unsigned requested) const;

  bool is_regular() const { return (mode & S_IFMT) == S_IFREG; }
  std::uint64_t device() const {
    return (static_cast<std::uint64_t>(device_major) << 32) | device_minor;
  }
  // Compares device and inode. A file system may give the inode of a removed file to a new file
  // (see is_same_life).
  bool same_file(const FileStat& other) const {
    return inode == other.inode && device() == other.device();
  }
  bool has_births(const FileStat& other) const { return (mask & other.mask & STATX_BTIME) != 0; }
  bool same_birth(const FileStat& other) const { return has_births(other) && born == other.born; }
  // True if both describe the same file with the same attributes. Ignores the mount id, which
  // differs between mounts, and the atime, which changes with each read.
  bool looks_like(FileStat other) const;
  // Whether both have the same mode, owners and number of links.
  bool same_rights(const FileStat& other) const {
    return mode == other.mode && user == other.user && group == other.group && links == other.links;
  }
  // True if the bytes are the same, judging by device, inode, size and mtime.
  bool same_content(const FileStat& other) const {
    return same_file(other) && size == other.size && modified == other.modified;
  }
  // True if the file has not changed since `other` was taken. Compares the ctime, too, because a
  // program can set the mtime back after a write (rsync -t, cp -p, touch -r). No program can set
  // the ctime, and setting the mtime changes the ctime.
  bool is_unchanged_since(const FileStat& other) const {
    return same_content(other) && same_rights(other) && changed == other.changed;
  }
};

// A flag for stat_fd and stat_path that makes the kernel ask the file's server. Without the flag
// the kernel may answer with attributes that the mount keeps (FUSE's attr_timeout, NFS's acregmin),
// although a read would return newer bytes. A stat needs this flag if it must prove that a record
// is right or that nothing has changed. On a local file system the flag has no effect.
inline constexpr int k_ask_server = AT_STATX_FORCE_SYNC;

// Whether the open file `fd`, with the stat `now`, can be the file of the earlier stat `then`,
// which has the same inode. False if the birth times differ. Birth times are ignored on overlayfs,
// because overlayfs changes the birth time of a file that it copies up.
bool is_same_life(int fd, const FileStat& now, const FileStat& then);

// The stat of an open file, or of a path (relative to `dir`).
base::Result<FileStat> stat_fd(int fd, int flags = 0);
base::Result<FileStat> stat_path(int dir, const char* path, int flags);

}  // namespace cube::cache
