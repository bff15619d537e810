#include "shim/fd/kernel_file.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/bucket/copy_stat.h"
#include "cache/origin/origins.h"
#include "cache/region/last_changes.h"
#include "cache/region/posix_locks.h"
#include "shim/fd/moved_file.h"
#include "shim/fd/placeholder.h"
#include "shim/process/attachment.h"
#include "shim/process/process.h"

namespace cube::shim::kernel_file {
namespace {

namespace sys = base::sys;

bool is_object(const cache::Record& record) {
  return process::has_buckets() &&
         process::origins()->of(record.path()).traits().is_counted_elsewhere;
}

// Returns a memfd with the bytes of a record, or -errno. For an object, the name of the memfd holds
// the stat of the object's path.
int write_memfd(const cache::Record& record, unsigned flags = 0) {
  struct ::rlimit limit {};
  // A write beyond the limit raises SIGXFSZ.
  if (!sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, sys::arg(&limit))) &&
      record.data_size > limit.rlim_cur)
    return -EFBIG;
  const cache::CopyName name(record.stat);
  const long fd =
      sys::memfd_create(is_object(record) ? name.c_str() : "cubeshim", MFD_CLOEXEC | flags);
  if (sys::failed(fd)) return static_cast<int>(fd);
  base::UniqueFd memfd(static_cast<int>(fd));
  for (std::uint64_t done = 0; done < record.data_size;) {
    const long n = sys::pwrite(memfd.get(), record.data() + done, record.data_size - done,
                               static_cast<std::int64_t>(done));
    if (sys::failed(n) || n == 0) return sys::failed(n) ? static_cast<int>(n) : -ENOSPC;
    done += static_cast<std::uint64_t>(n);
  }
  return memfd.release();
}

// Reopens the file read-only under the same fd. Returns the fd. If that fails, closes the fd and
// returns -errno.
int made_read_only(int fd, int status = 0) {
  if (fd < 0) return fd;
  const long read_only = sys::open(base::ProcFdName(fd).c_str(), O_RDONLY | O_CLOEXEC | status);
  // Keeps the lower of the two fds, because POSIX requires the lowest free fd.
  if (!sys::failed(read_only)) sys::dup3(static_cast<int>(read_only), fd, O_CLOEXEC);
  sys::close(sys::failed(read_only) ? fd : static_cast<int>(read_only));
  return sys::failed(read_only) ? static_cast<int>(read_only) : fd;
}

constexpr int k_only_at_open = O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_LARGEFILE;

// True if the fd refers to the file of the record. As with a kernel fd, later writes to the file
// are accepted, but a new file of the same name is not. A new file may reuse the inode, because the
// placeholder does not keep the inode in use. The birth times of the two files differ, if the file
// system has birth times.
bool is_file_of(int fd, const cache::Record& record, Accept accept) {
  const bool may_differ = accept == Accept::same_file || record.is_stale();
  const auto now = cache::stat_fd(fd, may_differ ? AT_STATX_DONT_SYNC : cache::k_ask_server);
  const cache::FileStat& then = record.stat;
  if (!now || !now->same_file(then) || !cache::is_same_life(fd, *now, then)) return false;
  if (now->same_content(then) || (may_differ && now->same_birth(then))) return true;
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr) return false;
  const cache::RamTier& ram = cache->parts().ram;
  return accept == Accept::same_file ? !cache::may_be_gone(ram, record)
                                     : cache::was_changed_and_kept(ram, record);
}

// Sets the flags of the program's open on the fd. Returns the fd, or the -errno that was passed
// instead of an fd.
int opened_like(long fd, const OpenFile& file) {
  if (!sys::failed(fd) && (file.flags & O_NONBLOCK) == 0)
    sys::fcntl(static_cast<int>(fd), F_SETFL, file.flags & ~k_only_at_open & ~O_CLOEXEC);
  return static_cast<int>(fd);
}

// True if the error means that the path leads to nothing, or to another kind of file.
bool leads_elsewhere(long error) {
  return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -ESTALE ||
         error == -ENXIO;
}

// Opens the file by the path of its record. -ESTALE: another file has the path.
long open_by_path(const cache::Record& record, Accept accept, int flags) {
  // The path may now lead to a FIFO, whose writer an open would unblock.
  const auto there = cache::stat_path(AT_FDCWD, record.path_text(), AT_STATX_DONT_SYNC);
  const long fd = !there || there->is_regular() ? sys::open(record.path_text(), flags) : -ESTALE;
  if (sys::failed(fd) || is_file_of(static_cast<int>(fd), record, accept)) return fd;
  cache::PosixLocks::close(static_cast<int>(fd));
  return -ESTALE;
}

std::uint64_t count_of_name_changes() {
  cache::FileCache* const cache = attachment::attached_cache();
  return cache != nullptr ? cache->region().header().name_changes.load(std::memory_order_seq_cst)
                          : 0;
}

}  // namespace

int open_origin(const OpenFile& file, Accept accept) {
  constexpr int k_most_searches = 3;
  const cache::Record& record = *file.record;
  const int flags = (file.flags & ~k_only_at_open) | O_CLOEXEC | O_NONBLOCK;
  long fd = open_by_path(record, accept, flags);
  if (!record.is_in_kernel()) return opened_like(fd, file);
  // A search may miss a file that is renamed meanwhile. A rename is counted only after it was made,
  // so the count is compared after each search.
  for (int i = 0; leads_elsewhere(fd) && i < k_most_searches; ++i) {
    const std::uint64_t changes = count_of_name_changes();
    fd = moved_file::open(record, flags);
    if (leads_elsewhere(fd)) fd = open_by_path(record, accept, flags);
    if (changes == count_of_name_changes()) break;
  }
  return opened_like(fd, file);
}

namespace {

// Gives a copy the file's times and mode. The inode, the link count and the blocks cannot be set.
int looking_like(int copy, const cache::FileStat& stat) {
  if (copy < 0) return copy;
  const auto& time = stat.modified;
  const struct ::timespec times[2] = {{time.seconds, static_cast<long>(time.nanoseconds)},
                                      {time.seconds, static_cast<long>(time.nanoseconds)}};
  sys::raw(SYS_utimensat, copy, 0, sys::arg(times), 0);
  sys::raw(SYS_fchmod, copy, stat.mode & 07777);
  return copy;
}

constexpr int k_status = O_APPEND | O_NONBLOCK | O_SYNC;

// Returns the gateway's copy of an object that is served in blocks, or -errno.
int copy_of_object(const OpenFile& file) {
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr) return -EIO;
  auto copy = cache->large().copy_object(*file.large, (file.flags & k_status) | O_CLOEXEC);
  return copy ? copy->release() : -copy.error().value;
}

// Whether the call must fail instead of getting a copy: it needs the origin's own file, and the
// origin still has it. A lock on a copy, or a change of the copy, would not affect that file.
bool is_refused(const OpenFile& file, Accept accept, int error) {
  return accept == Accept::same_file && file.record->is_in_kernel() && !leads_elsewhere(error);
}

int open_or_copy(const OpenFile& file, Accept accept) {
  if (file.large != nullptr) return copy_of_object(file);
  const int fd = open_origin(file, accept);
  if (fd >= 0 || fd == -EMFILE || fd == -ENFILE) return fd;
  if (is_refused(file, accept, fd)) return fd;
  return looking_like(made_read_only(write_memfd(*file.record), file.flags & k_status),
                      file.record->stat);
}

// Makes a copy without a second fd, which made_read_only() would need. The copy is open for
// writing, but its seals forbid writes.
int sealed_copy(const OpenFile& file) {
  const int copy = looking_like(write_memfd(*file.record, MFD_ALLOW_SEALING), file.record->stat);
  if (copy < 0) return copy;
  sys::fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  sys::fcntl(copy, F_SETFL, file.flags & k_status);
  return copy;
}

// Counts the threads without using an fd. Each thread has a directory in /proc/self/task, so the
// link count of /proc/self/task is the number of threads plus two.
bool has_other_threads() {
  struct ::statx x {};
  constexpr nlink_t k_alone = 3;
  return sys::failed(sys::raw(SYS_statx, AT_FDCWD, sys::arg("/proc/self/task"), 0, STATX_NLINK,
                              sys::arg(&x))) ||
         x.stx_nlink != k_alone;
}

// At the fd limit, the placeholder and the new file cannot be open at the same time, so this
// function closes the placeholder first. The process must have only one thread, because another
// thread could open a file under the free fd, or fork a child without the file.
int open_at_limit(const OpenFile& file, Accept accept, int fd) {
  // A copy by the gateway needs two fds, so it could still fail after the close. The fd of a copy
  // holds bytes that a placeholder does not.
  if (file.large != nullptr || file.is_copy() || has_other_threads()) return -EMFILE;
  struct ::rlimit limit {};
  // The program may have lowered the limit since the open. The kernel returns no fd at or above the
  // limit.
  if (sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::arg(&limit))) ||
      limit.rlim_cur <= static_cast<rlim_t>(fd))
    return -EMFILE;
  sys::close(fd);
  int opened = open_origin(file, accept);
  if (opened < 0 && !is_refused(file, accept, opened)) opened = sealed_copy(file);
  // The file stays served under the fd, which is the only free one.
  if (opened < 0) placeholder::open_fresh();
  return opened;
}

int open_above_limit(const OpenFile& file, Accept accept) {
  const base::LiftedFdLimit lifted;
  return open_or_copy(file, accept);
}

}  // namespace

int open(const OpenFile& file, Accept accept, int fd) {
  int opened = open_or_copy(file, accept);
  if (opened == -EMFILE) opened = open_above_limit(file, accept);
  return opened == -EMFILE ? open_at_limit(file, accept, fd) : opened;
}

int copy_bytes_of(const cache::Record& record) { return made_read_only(write_memfd(record)); }
int make_empty() {
  return made_read_only(static_cast<int>(sys::memfd_create("cubeshim", MFD_CLOEXEC)));
}

}  // namespace cube::shim::kernel_file
