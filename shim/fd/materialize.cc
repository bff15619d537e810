#include "shim/fd/materialize.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "cache/base/clock.h"
#include "cache/base/memory/mapping.h"
#include "cache/base/path.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/bucket/copy_stat.h"
#include "cache/origin/origins.h"
#include "cache/region/lanes.h"
#include "cache/report/notes.h"
#include "shim/fd/moved_file.h"
#include "shim/process/attachment.h"
#include "shim/process/process.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;

bool is_object(const cache::Record& record) {
  return process::has_buckets() &&
         process::origins()->of(record.path()).traits().is_counted_elsewhere;
}

// A memfd with the bytes of a record, or -errno. The memfd of an object shows the stat of the
// object's path.
int write_memfd(const cache::Record& record) {
  struct ::rlimit limit {};
  // A write beyond the limit raises SIGXFSZ.
  if (!sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, sys::arg(&limit))) &&
      record.data_size > limit.rlim_cur)
    return -EFBIG;
  const cache::CopyName name(record.stat);
  const long fd = sys::memfd_create(is_object(record) ? name.c_str() : "cubeshim", MFD_CLOEXEC);
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

// Reopens the file read-only under the same fd. Returns the fd; or -errno, and the fd is closed.
int made_read_only(int fd, int status = 0) {
  if (fd < 0) return fd;
  const long read_only = sys::open(base::ProcFdName(fd).c_str(), O_RDONLY | O_CLOEXEC | status);
  // The lower of the two fds is the one that the program would have got.
  if (!sys::failed(read_only)) sys::dup3(static_cast<int>(read_only), fd, O_CLOEXEC);
  sys::close(sys::failed(read_only) ? fd : static_cast<int>(read_only));
  return sys::failed(read_only) ? static_cast<int>(read_only) : fd;
}

enum class Accept : bool { same_content, same_file };

int materialize_accepting(int fd, Accept accept, const char* call);

constexpr int k_only_at_open = O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_LARGEFILE;

// The fd, if its file is the one that the program has opened; or -errno.
int checked(long fd, const OpenFile& file, Accept accept) {
  if (sys::failed(fd)) return static_cast<int>(fd);
  // A kernel fd sees later writes to its file, but never another file under the same name.
  const bool may_differ = accept == Accept::same_file || file.record->is_stale();
  const auto now =
      cache::stat_fd(static_cast<int>(fd), may_differ ? AT_STATX_DONT_SYNC : cache::k_ask_server);
  const cache::FileStat& then = file.record->stat;
  const bool same = now && (may_differ ? now->same_file(then) : now->same_content(then)) &&
                    cache::is_same_life(static_cast<int>(fd), *now, then);
  if (!same) {
    sys::close(static_cast<int>(fd));
    return -ESTALE;
  }
  if ((file.flags & O_NONBLOCK) == 0)
    sys::fcntl(static_cast<int>(fd), F_SETFL, file.flags & ~k_only_at_open & ~O_CLOEXEC);
  return static_cast<int>(fd);
}

// The path leads to nothing, or to something else.
bool leads_elsewhere(int error) {
  return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -ESTALE ||
         error == -ENXIO;
}

// The origin's own file, if it is still the one that the program has opened; or -errno.
int open_origin(const OpenFile& file, Accept accept) {
  const cache::Record& record = *file.record;
  const int flags = (file.flags & ~k_only_at_open) | O_CLOEXEC | O_NONBLOCK;
  const int fd = checked(sys::open(record.path_text(), flags), file, accept);
  if (!leads_elsewhere(fd) || !record.is_in_kernel()) return fd;
  return checked(moved_file::open(record, flags), file, accept);
}

// Gives a copy the stat of the file as far as it can be set: not its inode, link count and blocks.
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

// The gateway's copy of an object that is served in blocks.
int copy_of_object(const OpenFile& file) {
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr) return -EIO;
  auto copy = cache->large().copy_object(*file.large, (file.flags & k_status) | O_CLOEXEC);
  return copy ? copy->release() : -copy.error().value;
}

int open_kernel_file(const OpenFile& file, Accept accept) {
  if (file.large != nullptr) return copy_of_object(file);
  const int fd = open_origin(file, accept);
  if (fd >= 0 || fd == -EMFILE || fd == -ENFILE) return fd;
  // The origin still has the file, and a lock or a change of a copy would not reach it.
  if (accept == Accept::same_file && file.record->is_in_kernel() && !leads_elsewhere(fd)) return fd;
  return looking_like(made_read_only(write_memfd(*file.record), file.flags & k_status),
                      file.record->stat);
}

// At the limit of fds there is no room for the old and the new file at the same time, so this
// closes the fd first. Its row is BUSY, so only the kernel can give the fd away until then, and the
// kernel gives it to us.
int open_kernel_file_at_limit(const OpenFile& file, Accept accept, int fd) {
  struct ::rlimit limit {};
  // The limit may have been lowered since the open; the kernel gives back no fd at or above it.
  if (sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::arg(&limit))) ||
      limit.rlim_cur <= static_cast<rlim_t>(fd))
    return -EMFILE;
  sys::close(fd);
  if (file.large != nullptr) return copy_of_object(file);
  const int kernel_fd = open_origin(file, accept);
  return kernel_fd >= 0 ? kernel_fd : looking_like(write_memfd(*file.record), file.record->stat);
}

int open_kernel_file_above_limit(const OpenFile& file, Accept accept) {
  const base::LiftedFdLimit lifted;
  return open_kernel_file(file, accept);
}

// Call it after announcing that a file moves and before loading the rows of its other fds; pairs
// with the fence in follow_if_moved.
void tell_before_rows() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Waits for the calls that began to move a copy's offset before k_moved was set. They wait for
// nothing but memory, so a call that takes longer than k_longest_ns is the one that our own signal
// handler has interrupted, or its thread is gone.
void await_users_of_copy(const OpenFile& file) {
  constexpr std::uint64_t k_longest_ns = 500'000'000;
  const std::uint64_t began = base::monotonic_ns();
  while (file.users_of_copy.load(std::memory_order_seq_cst) != 0 &&
         base::monotonic_ns() - began < k_longest_ns)
    sched_yield();
}

// Takes the offset away from calls that still read in user space, and returns it.
std::uint64_t take_offset(OpenFile& file, int fd) {
  const std::uint64_t offset =
      file.offset.fetch_or(OpenFile::k_moved, std::memory_order_seq_cst) & ~OpenFile::k_moved;
  if (!file.is_copy()) return offset;
  await_users_of_copy(file);
  const long at = sys::lseek(fd, 0, SEEK_CUR);
  return sys::failed(at) ? 0 : static_cast<std::uint64_t>(at);
}

}  // namespace

void put_over(int kernel_fd, int fd, int flags) {
  if (sys::dup3(kernel_fd, fd, flags) != -EBADF) return;
  const base::LiftedFdLimit lifted;
  sys::dup3(kernel_fd, fd, flags);
}

int copy_to_memfd(const cache::Record& record) { return made_read_only(write_memfd(record)); }
int empty_memfd() {
  return made_read_only(static_cast<int>(sys::memfd_create("cubeshim", MFD_CLOEXEC)));
}

namespace {

bool is_path_only(int fd) {
  const long flags = sys::fcntl(fd, F_GETFL);
  return sys::failed(flags) || (flags & O_PATH) != 0;
}

// Whether this fd of the file is the origin's own. The fd of a file whose bytes come as they are
// read has been the origin's from the start. Nothing may replace it, because memory does not have
// all bytes.
bool has_origin(const OpenFile& file, int fd) {
  return file.is_origin() && (file.fill != nullptr || !is_path_only(fd));
}

// Calls replace(fd, row) for this fd, whose row the caller has locked, and for each dup of it,
// until the file has no more than `refs_left` references. replace() unlocks the row.
template <typename Replace>
void for_each_fd(OpenFile& file, int fd, std::uint64_t own_row, std::uint32_t refs_left,
                 Replace&& replace) {
  replace(fd, own_row);
  tell_before_rows();
  for (int other = 0; other < g_fds.end() && file.refs.load(std::memory_order_acquire) > refs_left;
       ++other) {
    std::uint64_t row = 0;
    if (g_fds.lock_if(other, &file, row)) replace(other, row);
  }
}

// Puts the kernel's file over all fds of the file, which keep their rows: our reference and that of
// `fd` are left.
void put_over_all(int kernel_fd, OpenFile& file, int fd, std::uint64_t own_row) {
  for_each_fd(file, fd, own_row, /*refs_left=*/2, [&](int other_fd, std::uint64_t row) {
    put_over(kernel_fd, other_fd, O_CLOEXEC);
    g_fds.unlock(other_fd, row);
  });
}

void count_materialized(const char* call) {
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr) return;
  cache->stats().count(base::Counter::materialized);
  constexpr std::string_view k_ours = "export_";
  const bool is_export = std::string_view(call).starts_with(k_ours);
  cache::count_materialized(cache->region(), cache->region().own_job(),
                            call + (is_export ? k_ours.size() : 0));
}

// Hands the fds of a file over to the kernel, which already has the file open at them: one by one,
// without a dup3, which would drop the program's record locks.
void hand_over(OpenFile& file, int fd, std::uint64_t row) {
  const std::uint64_t offset = file.offset.fetch_or(OpenFile::k_moved, std::memory_order_acq_rel);
  if ((offset & OpenFile::k_moved) == 0)
    sys::lseek(fd, static_cast<std::int64_t>(offset), SEEK_SET);
  const auto give = [&](int other_fd, std::uint64_t own) {
    sys::fcntl(other_fd, F_SETFD, (own & FdTable::k_close_on_exec) != 0 ? FD_CLOEXEC : 0);
    g_fds.unlock(other_fd, 0);
    FdTable::reference_in(own).reset();
  };
  give(fd, row);
  tell_before_rows();
  for (int other = 0; other < g_fds.end() && file.refs.load(std::memory_order_acquire) > 1;
       ++other) {
    std::uint64_t own = 0;
    if (!g_fds.lock_if(other, &file, own)) continue;
    if (!has_origin(file, other)) {
      g_fds.unlock(other, own);
    } else {
      give(other, own);
    }
  }
}

}  // namespace

int open_origin_again(const OpenFile& file) { return open_origin(file, Accept::same_file); }

int show_origin(int fd) {
  if (!process::owns_table()) return 0;
  const BlockSignals block;
  const OpenFileRef file = g_fds.acquire(fd);
  if (!file || file->is_origin()) return 0;
  std::uint64_t own_row = 0;
  if (!g_fds.lock_if(fd, file.get(), own_row)) return show_origin(fd);
  const std::uint64_t offset = file->offset.load(std::memory_order_acquire);
  const bool has_moved = file->is_copy() || (offset & OpenFile::k_moved) != 0;
  const int kernel_fd = has_moved ? -ESTALE : open_origin(*file, Accept::same_file);
  if (kernel_fd < 0) {
    g_fds.unlock(fd, own_row);
    // A program that locks a file must see the bytes that other processes have written, and must
    // lock the file that they lock.
    return materialize_accepting(fd, Accept::same_file, "lock");
  }
  if (cache::FileCache* const cache = attachment::attached_cache(); cache != nullptr)
    cache->stats().count(base::Counter::locked);
  sys::lseek(kernel_fd, static_cast<std::int64_t>(offset), SEEK_SET);
  // Stored first, so that a thread that has dup'ed the placeholder in the meantime sees it.
  file->fd_kind.store(OpenFile::FdKind::origin, std::memory_order_seq_cst);
  put_over_all(kernel_fd, *file, fd, own_row);
  sys::close(kernel_fd);
  return 0;
}

void materialize_if_changed(int fd) {
  const OpenFileRef file = g_fds.acquire(fd);
  if (!file || !file->is_origin()) return;
  const auto now = cache::stat_fd(fd, cache::k_ask_server);
  if (!now || !now->same_content(file->record->stat)) materialize_slow(fd, "change");
}

void tell_offset(int fd) {
  const BlockSignals block;
  const OpenFileRef file = g_fds.acquire(fd);
  std::uint64_t row = 0;
  // If another thread holds the row, the fd is being closed or given to the kernel with its offset.
  if (!file || !g_fds.lock_if(fd, file.get(), row)) return;
  const std::uint64_t offset = file->offset.load(std::memory_order_acquire);
  if (file->is_origin() && (offset & OpenFile::k_moved) == 0)
    sys::lseek(fd, static_cast<std::int64_t>(offset), SEEK_SET);
  g_fds.unlock(fd, row);
}

void follow_origin(int from, int copy) {
  const BlockSignals block;
  const OpenFileRef file = g_fds.acquire(copy);
  std::uint64_t row = 0, from_row = 0;
  if (!file || !is_path_only(copy) || !g_fds.lock_if(copy, file.get(), row)) return;
  if (g_fds.lock_if(from, file.get(), from_row)) {
    sys::dup3(from, copy, O_CLOEXEC);
    g_fds.unlock(from, from_row);
  }
  g_fds.unlock(copy, row);
}

int materialize_slow(int fd, const char* call) {
  if (g_fds.kind(fd) == RowKind::mount_stream) {
    process::g_upcalls->materialize_directory(fd);
    return 0;
  }
  return materialize_accepting(fd, Accept::same_content, call);
}

namespace {

int materialize_accepting(int fd, Accept accept, const char* call) {
  if (!process::owns_table()) return 0;
  const BlockSignals block;
  const OpenFileRef file = g_fds.acquire(fd);
  if (!file) return 0;
  std::uint64_t own_row = 0;
  // Another thread is materializing the file, or has changed the fd. The retry waits until the row
  // is no longer BUSY.
  if (!g_fds.lock_if(fd, file.get(), own_row)) return materialize_accepting(fd, accept, call);

  if (has_origin(*file, fd)) {
    if (file->fill != nullptr) file->fill->give_up();
    hand_over(*file, fd, own_row);
    count_materialized(call);
    return 0;
  }
  std::uint64_t offset = take_offset(*file, fd);
  int kernel_fd = open_kernel_file(*file, accept);
  if (kernel_fd == -EMFILE) kernel_fd = open_kernel_file_above_limit(*file, accept);
  if (kernel_fd == -EMFILE) kernel_fd = open_kernel_file_at_limit(*file, accept, fd);
  if (kernel_fd < 0) {
    file->offset.fetch_and(~OpenFile::k_moved, std::memory_order_acq_rel);
    g_fds.unlock(fd, own_row);
    return kernel_fd;
  }
  // Mode real: a call that bypasses the shim may have read on from the copy while the origin's file
  // was opened.
  if (file->is_copy() && kernel_fd != fd) offset = take_offset(*file, fd);
  sys::lseek(kernel_fd, static_cast<std::int64_t>(offset), SEEK_SET);
  const auto replace = [&](int other_fd, std::uint64_t row) {
    const bool close_on_exec = (row & FdTable::k_close_on_exec) != 0;
    if (other_fd == kernel_fd) {
      sys::fcntl(other_fd, F_SETFD, close_on_exec ? FD_CLOEXEC : 0);
    } else {
      put_over(kernel_fd, other_fd, close_on_exec ? O_CLOEXEC : 0);
    }
    g_fds.unlock(other_fd, 0);
    FdTable::reference_in(row).reset();
  };
  // In the common case there are no dups, and only our own reference is left.
  for_each_fd(*file, fd, own_row, /*refs_left=*/1, replace);
  if (kernel_fd != fd) sys::close(kernel_fd);
  count_materialized(call);
  return 0;
}

// A memfd without bytes, open neither for reading nor for writing; or -errno.
int make_offset_keeper() {
  const base::UniqueFd memfd(static_cast<int>(sys::memfd_create("cubeshim", MFD_CLOEXEC)));
  if (!memfd) return memfd.get();
  return static_cast<int>(sys::open(base::ProcFdName(memfd.get()).c_str(), O_ACCMODE | O_CLOEXEC));
}

// Lets the kernel keep the offset of an object that is served in blocks, so that parent and child
// share it. Blocks still serve the bytes. Call it before a fork if the gateway cannot make a copy.
void share_offset(int fd) {
  const BlockSignals block;
  const OpenFileRef file = g_fds.acquire(fd);
  if (!file || file->large == nullptr || !file->is_placeholder()) return;
  std::uint64_t own_row = 0;
  if (!g_fds.lock_if(fd, file.get(), own_row)) return;
  const int keeper = make_offset_keeper();
  if (keeper < 0) return g_fds.unlock(fd, own_row);
  sys::lseek(keeper, static_cast<std::int64_t>(take_offset(*file, fd)), SEEK_SET);
  // Stored first, so that a thread that has dup'ed the placeholder in the meantime sees it.
  file->fd_kind.store(OpenFile::FdKind::copy, std::memory_order_seq_cst);
  file->offset.fetch_and(~OpenFile::k_moved, std::memory_order_acq_rel);
  put_over_all(keeper, *file, fd, own_row);
  sys::close(keeper);
}

}  // namespace

void materialize_for_child() {
  if (!process::owns_table()) return;
  placeholder::unpark();
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    if (!g_fds.close_on_exec(fd)) continue;
    const auto is_shared = [&] {
      const OpenFileRef file = g_fds.acquire(fd);
      return file && file->shares_offset();
    };
    if (!is_shared() && materialize_slow(fd, "fork") < 0) share_offset(fd);
  }
}

void materialize_all(bool only_inherited, const char* call) {
  placeholder::unpark();
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    const std::optional<bool> close_on_exec = g_fds.close_on_exec(fd);
    if (close_on_exec && !(only_inherited && *close_on_exec)) materialize_slow(fd, call);
  }
}

int materialize_to_change(int fd, const char* call) {
  placeholder::unpark_if(fd);
  return g_fds.kind(fd) == RowKind::served ? materialize_accepting(fd, Accept::same_file, call)
                                           : materialize(fd, call);
}

namespace {

bool is_of_lower_fd(const OpenFile& file, int fd) {
  for (int lower = 0; lower < fd; ++lower) {
    if (g_fds.acquire(lower).get() == &file) return true;
  }
  return false;
}

}  // namespace

void keep_own_copies() {
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    const OpenFileRef file = g_fds.acquire(fd);
    if (!file || file->large != nullptr || is_of_lower_fd(*file, fd)) continue;
    const std::size_t head = file->record->data_offset;
    auto copy = base::Mapping::anonymous(head + file->size);
    if (!copy) continue;
    std::memcpy(copy->data(), file->record, head);
    std::memcpy(copy->data() + head, file->data, file->size);
    file->record = reinterpret_cast<const cache::Record*>(copy->data());
    file->data = copy->data() + head;
    copy->forget();
  }
}

void materialize_streams() {
  if (!process::owns_table()) return;
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    if (g_fds.kind(fd) == RowKind::mount_stream) process::g_upcalls->materialize_directory(fd);
  }
}

void materialize_below(std::string_view path) {
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    const OpenFileRef file = g_fds.acquire(fd);
    if (!file) continue;
    if (base::is_at_or_below(file->record->path(), path)) materialize_slow(fd, "rename");
  }
}

void materialize_other_names(const cache::FileStat& target) {
  const auto type = target.mode & S_IFMT;
  const bool leads_on = type == S_IFDIR || type == S_IFLNK;
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    const OpenFileRef file = g_fds.acquire(fd);
    if (!file) continue;
    if (leads_on ? !file->record->is_physical() : file->record->stat.same_file(target))
      materialize_slow(fd, "rename");
  }
}

void let_writer_outlive_us(int fd, cache::Sharing how) {
  if (g_fds.kind(fd) != RowKind::writer) return;
  // The row stays, because a mapping may follow a fork.
  if (const OpenFileRef file = g_fds.acquire_writer(fd)) open_files::let_writing_last(*file, how);
}

void let_writers_outlive_us() {
  for (int fd = 0; fd < g_fds.end(); ++fd) let_writer_outlive_us(fd);
}

void let_inherited_writers_outlive_us() {
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    // Asks the kernel whether an exec closes the fd, because a writer's row does not follow
    // F_SETFD.
    if (g_fds.kind(fd) == RowKind::writer && (sys::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0)
      let_writer_outlive_us(fd);
  }
}

void flush_counters() {
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr) return;
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    OpenFileRef file = g_fds.acquire(fd);
    if (!file) file = g_fds.acquire_kind(fd, RowKind::large);
    if (!file) continue;
    cache::count_served(cache->region(), file->bytes_served.exchange(0, std::memory_order_relaxed),
                        file->calls_saved.exchange(0, std::memory_order_relaxed));
  }
}

}  // namespace cube::shim
