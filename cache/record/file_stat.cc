#include "cache/record/file_stat.h"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstring>

#include "cache/base/process/went_out.h"

namespace cube::cache {
namespace {

FileTime time_from(const struct ::statx_timestamp& t) { return {t.tv_sec, t.tv_nsec, 0}; }
FileTime time_from(const struct ::timespec& t) {
  return {t.tv_sec, static_cast<std::uint32_t>(t.tv_nsec), 0};
}
struct ::timespec timespec_from(const FileTime& t) {
  return {t.seconds, static_cast<long>(t.nanoseconds)};
}
struct ::statx_timestamp statx_time_from(const FileTime& t) {
  struct ::statx_timestamp out {};
  out.tv_sec = t.seconds;
  out.tv_nsec = t.nanoseconds;
  return out;
}

base::Result<FileStat> stat_any(int dir, const char* path, int flags) {
  struct ::statx x {};
  long error = base::sys::statx(dir, path, flags, FileStat::k_request, &x);
  if (!base::sys::failed(error)) return FileStat::from(x);
  if (error == -ENOSYS || error == -EPERM || error == -EACCES) {
    // A sandbox that is older than statx refuses this call (Docker before 20.10).
    struct ::stat st {};
    error = base::sys::fstatat(dir, path, &st,
                               flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT));
    if (!base::sys::failed(error)) return FileStat::from(st);
  }
  return base::fail(static_cast<int>(-error));
}

}  // namespace

bool is_same_life(int fd, const FileStat& now, const FileStat& then) {
  if (!now.has_births(then) || now.born == then.born) return true;
  struct ::statfs of_file {};
  return !base::sys::failed(base::sys::raw(SYS_fstatfs, fd, base::sys::arg(&of_file))) &&
         of_file.f_type == OVERLAYFS_SUPER_MAGIC;
}

FileStat FileStat::from(const struct ::statx& x) {
  FileStat s{};
  s.inode = x.stx_ino;
  s.size = x.stx_size;
  s.blocks = x.stx_blocks;
  s.attributes = x.stx_attributes;
  s.attributes_mask = x.stx_attributes_mask;
  s.mount_id = x.stx_mnt_id;
  s.mode = x.stx_mode;
  s.links = x.stx_nlink;
  s.user = x.stx_uid;
  s.group = x.stx_gid;
  s.device_major = x.stx_dev_major;
  s.device_minor = x.stx_dev_minor;
  s.special_major = x.stx_rdev_major;
  s.special_minor = x.stx_rdev_minor;
  s.block_size = x.stx_blksize;
  s.mask = x.stx_mask;
  s.accessed = time_from(x.stx_atime);
  s.modified = time_from(x.stx_mtime);
  s.changed = time_from(x.stx_ctime);
  s.born = time_from(x.stx_btime);
  return s;
}

FileStat FileStat::from(const struct ::stat& st) {
  FileStat s{};
  s.inode = st.st_ino;
  s.size = static_cast<std::uint64_t>(st.st_size);
  s.blocks = static_cast<std::uint64_t>(st.st_blocks);
  s.mode = st.st_mode;
  s.links = static_cast<std::uint32_t>(st.st_nlink);
  s.user = st.st_uid;
  s.group = st.st_gid;
  s.device_major = major(st.st_dev);
  s.device_minor = minor(st.st_dev);
  s.special_major = major(st.st_rdev);
  s.special_minor = minor(st.st_rdev);
  s.block_size = static_cast<std::uint32_t>(st.st_blksize);
  s.mask = STATX_BASIC_STATS;
  s.accessed = time_from(st.st_atim);
  s.modified = time_from(st.st_mtim);
  s.changed = time_from(st.st_ctim);
  return s;
}

void FileStat::copy_to(struct ::stat& st) const {
  std::memset(&st, 0, sizeof st);
  st.st_dev = makedev(device_major, device_minor);
  st.st_ino = inode;
  st.st_mode = mode;
  st.st_nlink = links;
  st.st_uid = user;
  st.st_gid = group;
  st.st_rdev = makedev(special_major, special_minor);
  st.st_size = static_cast<off_t>(size);
  st.st_blksize = static_cast<blksize_t>(block_size);
  st.st_blocks = static_cast<blkcnt_t>(blocks);
  st.st_atim = timespec_from(accessed);
  st.st_mtim = timespec_from(modified);
  st.st_ctim = timespec_from(changed);
}

void FileStat::copy_to(struct ::statx& x, unsigned requested) const {
  std::memset(&x, 0, sizeof x);
  // The kernel always fills the basic fields and the mount id, but the birth time only on request.
  x.stx_mask = mask & (STATX_BASIC_STATS | STATX_MNT_ID | requested);
  x.stx_blksize = block_size;
  x.stx_attributes = attributes;
  x.stx_attributes_mask = attributes_mask;
  x.stx_nlink = links;
  x.stx_uid = user;
  x.stx_gid = group;
  x.stx_mode = static_cast<std::uint16_t>(mode);
  x.stx_ino = inode;
  x.stx_size = size;
  x.stx_blocks = blocks;
  x.stx_atime = statx_time_from(accessed);
  x.stx_mtime = statx_time_from(modified);
  x.stx_ctime = statx_time_from(changed);
  if ((x.stx_mask & STATX_BTIME) != 0) x.stx_btime = statx_time_from(born);
  x.stx_rdev_major = special_major;
  x.stx_rdev_minor = special_minor;
  x.stx_dev_major = device_major;
  x.stx_dev_minor = device_minor;
  if ((x.stx_mask & STATX_MNT_ID) != 0) x.stx_mnt_id = mount_id;
}

bool FileStat::looks_like(FileStat other) const {
  other.accessed = accessed;
  other.mount_id = mount_id;
  return std::memcmp(this, &other, sizeof other) == 0;
}

base::Result<FileStat> stat_fd(int fd, int flags) {
  return stat_any(fd, "", AT_EMPTY_PATH | flags);
}
base::Result<FileStat> stat_path(int dir, const char* path, int flags) {
  base::note_way_out();
  return stat_any(dir, path, flags);
}

}  // namespace cube::cache
