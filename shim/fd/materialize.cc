#include "shim/fd/materialize.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "cache/base/clock.h"
#include "cache/base/memory/mapping.h"
#include "cache/base/path.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/region/lanes.h"
#include "cache/region/posix_locks.h"
#include "cache/report/notes.h"
#include "shim/fd/kernel_file.h"
#include "shim/fd/replaces_fds.h"
#include "shim/process/attachment.h"
#include "shim/process/process.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;
using kernel_file::Accept;

int materialize_accepting(int fd, Accept accept, const char* call,
                          ForkSide side = ForkSide::parent);

// Call this after announcing that a file is being materialized, and before loading the rows of its
// other fds. The fence pairs with the fence in follow_if_moved.
void tell_before_rows() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Waits for calls that began to move a copy's offset before k_moved was set. Such a call waits for
// nothing but memory. If it takes longer than k_longest_ns, a signal handler in this thread has
// interrupted it, or its thread is gone.
void await_users_of_copy(const OpenFile& file) {
  constexpr std::uint64_t k_longest_ns = 500'000'000;
  const std::uint64_t began = base::monotonic_ns();
  while (file.users_of_copy.load(std::memory_order_seq_cst) != 0 &&
         base::monotonic_ns() - began < k_longest_ns)
    sched_yield();
}

// Prevents further calls from moving the offset in user space, and returns the offset.
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

namespace {

bool is_path_only(int fd) {
  const long flags = sys::fcntl(fd, F_GETFL);
  return sys::failed(flags) || (flags & O_PATH) != 0;
}

// True if this fd already refers to the origin's own file. If the bytes of a file arrive as they
// are read, its fd has referred to the origin's own file since the open. Such an fd must not be
// replaced, because memory does not have all bytes.
bool has_origin(const OpenFile& file, int fd) {
  return file.is_origin() && (file.fill != nullptr || !is_path_only(fd));
}

// Calls replace(fd, row) for this fd, whose row the caller has locked, and for each dup of it.
// replace() unlocks the row. Stops when the file has no more than `refs_left` references.
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

// Puts the kernel's file over `fd` and all its dups, which keep their rows. If only the caller and
// the row of `fd` hold references, there are no dups.
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

// Leaves the fds of a file, which refer to the origin's own file, to the kernel: clears their rows
// one by one. Does not use dup3, which would drop the program's record locks. A child, which
// inherits no record locks, opens the file again instead: a seek on the shared fd would also move
// the parent's offset, although the parent may already have left the file to the kernel.
void hand_over(OpenFile& file, int fd, std::uint64_t row, ForkSide side) {
  const std::uint64_t offset = file.offset.fetch_or(OpenFile::k_moved, std::memory_order_acq_rel);
  base::UniqueFd own;
  if ((offset & OpenFile::k_moved) == 0) {
    if (side == ForkSide::child)
      own = base::UniqueFd(kernel_file::open_origin(file, Accept::same_file));
    if (side == ForkSide::parent || own)
      sys::lseek(own ? own.get() : fd, static_cast<std::int64_t>(offset), SEEK_SET);
  }
  const auto give = [&](int other_fd, std::uint64_t other_row) {
    const bool close_on_exec = (other_row & FdTable::k_close_on_exec) != 0;
    if (own) put_over(own.get(), other_fd, O_CLOEXEC);
    sys::fcntl(other_fd, F_SETFD, close_on_exec ? FD_CLOEXEC : 0);
    g_fds.unlock(other_fd, 0);
    FdTable::reference_in(other_row).reset();
  };
  give(fd, row);
  tell_before_rows();
  for (int other = 0; other < g_fds.end() && file.refs.load(std::memory_order_acquire) > 1;
       ++other) {
    std::uint64_t other_row = 0;
    if (!g_fds.lock_if(other, &file, other_row)) continue;
    if (!has_origin(file, other)) {
      g_fds.unlock(other, other_row);
    } else {
      give(other, other_row);
    }
  }
}

}  // namespace

int open_origin_again(const OpenFile& file) {
  return kernel_file::open_origin(file, Accept::same_file);
}

int show_origin(int fd) {
  if (!process::owns_table()) return 0;
  const BlockSignals block;
  while (const OpenFileRef file = g_fds.acquire(fd)) {
    const ReplacesFds replaces(*file);
    if (file->is_origin()) return 0;
    std::uint64_t own_row = 0;
    // Another thread has changed the fd.
    if (!g_fds.lock_if(fd, file.get(), own_row)) continue;
    const std::uint64_t offset = file->offset.load(std::memory_order_acquire);
    // In a child, k_moved may be set because a thread of the parent had begun to materialize the
    // file.
    const bool has_moved = file->is_copy() || (offset & OpenFile::k_moved) != 0;
    const int kernel_fd = has_moved ? -ESTALE : kernel_file::open_origin(*file, Accept::same_file);
    if (kernel_fd < 0) {
      g_fds.unlock(fd, own_row);
      break;
    }
    if (cache::FileCache* const cache = attachment::attached_cache(); cache != nullptr)
      cache->stats().count(base::Counter::locked);
    sys::lseek(kernel_fd, static_cast<std::int64_t>(offset), SEEK_SET);
    // The kind is stored before the fds change, so that a thread that dups the placeholder in
    // between sees the new kind.
    file->fd_kind.store(OpenFile::FdKind::origin, std::memory_order_seq_cst);
    put_over_all(kernel_fd, *file, fd, own_row);
    cache::PosixLocks::close(kernel_fd);
    return 0;
  }
  // A program that locks a file must lock the same file as other processes, and must see the bytes
  // that they have written.
  return materialize_accepting(fd, Accept::same_file, "lock");
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
  if (!file) return;
  const ReplacesFds replaces(*file);
  std::uint64_t row = 0;
  // A changed row means that the fd was closed, or that the file was materialized with the right
  // offset.
  if (!g_fds.lock_if(fd, file.get(), row)) return;
  const std::uint64_t offset = file->offset.load(std::memory_order_acquire);
  if (file->is_origin() && (offset & OpenFile::k_moved) == 0)
    sys::lseek(fd, static_cast<std::int64_t>(offset), SEEK_SET);
  g_fds.unlock(fd, row);
}

void follow_origin(int from, int copy) {
  const BlockSignals block;
  const OpenFileRef file = g_fds.acquire(copy);
  if (!file) return;
  const ReplacesFds replaces(*file);
  std::uint64_t row = 0, from_row = 0;
  if (!is_path_only(copy) || !g_fds.lock_if(copy, file.get(), row)) return;
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

// Puts a kernel file over all fds of the file. The row of `fd` is locked. Returns 0 or -errno.
// After an error, the file stays served.
int put_kernel_file(OpenFile& file, Accept accept, int fd, std::uint64_t own_row) {
  std::uint64_t offset = take_offset(file, fd);
  const int kernel_fd = kernel_file::open(file, accept, fd);
  if (kernel_fd < 0) {
    file.offset.fetch_and(~OpenFile::k_moved, std::memory_order_acq_rel);
    g_fds.unlock(fd, own_row);
    return kernel_fd;
  }
  // In mode real, a call that bypasses the shim may have moved the copy's offset while the origin's
  // file was being opened. So load the offset again.
  if (file.is_copy() && kernel_fd != fd) offset = take_offset(file, fd);
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
  // The caller holds one reference. Usually there are no dups, so no other reference is left.
  for_each_fd(file, fd, own_row, /*refs_left=*/1, replace);
  if (kernel_fd != fd) cache::PosixLocks::close(kernel_fd);
  return 0;
}

int materialize_accepting(int fd, Accept accept, const char* call, ForkSide side) {
  if (!process::owns_table()) return 0;
  const BlockSignals block;
  while (const OpenFileRef file = g_fds.acquire(fd)) {
    const ReplacesFds replaces(*file);
    std::uint64_t own_row = 0;
    // Another thread has materialized the file, or has changed the fd.
    if (!g_fds.lock_if(fd, file.get(), own_row)) continue;
    if (has_origin(*file, fd)) {
      if (file->fill != nullptr) file->fill->give_up();
      hand_over(*file, fd, own_row, side);
    } else if (const int error = put_kernel_file(*file, accept, fd, own_row); error < 0) {
      return error;
    }
    count_materialized(call);
    return 0;
  }
  return 0;
}

// Returns an empty memfd that is open neither for reading nor for writing, or -errno.
int make_offset_keeper() {
  const base::UniqueFd memfd(static_cast<int>(sys::memfd_create("cubeshim", MFD_CLOEXEC)));
  if (!memfd) return memfd.get();
  return static_cast<int>(sys::open(base::ProcFdName(memfd.get()).c_str(), O_ACCMODE | O_CLOEXEC));
}

// Makes the kernel keep the offset of an object that is served in blocks, so that parent and child
// share the offset. The bytes still come from the blocks. Call this before a fork if the gateway
// cannot make a copy.
void share_offset(int fd) {
  const BlockSignals block;
  const OpenFileRef file = g_fds.acquire(fd);
  if (!file || file->large == nullptr) return;
  const ReplacesFds replaces(*file);
  if (!file->is_placeholder()) return;
  std::uint64_t own_row = 0;
  if (!g_fds.lock_if(fd, file.get(), own_row)) return;
  const int keeper = make_offset_keeper();
  if (keeper < 0) return g_fds.unlock(fd, own_row);
  sys::lseek(keeper, static_cast<std::int64_t>(take_offset(*file, fd)), SEEK_SET);
  // The kind is stored before the fds change, so that a thread that dups the placeholder in between
  // sees the new kind.
  file->fd_kind.store(OpenFile::FdKind::copy, std::memory_order_seq_cst);
  file->offset.fetch_and(~OpenFile::k_moved, std::memory_order_acq_rel);
  put_over_all(keeper, *file, fd, own_row);
  sys::close(keeper);
}

// Call this before a fork, if no fd was free to materialize the file. The child has only one
// thread, so it could free the placeholder's fd and open the file itself (open_at_limit). But its
// offset would not be the parent's.
void keep_from_child(int fd) {
  const OpenFileRef file = g_fds.acquire(fd);
  if (file && file->is_placeholder()) file->is_kept_from_child.store(true);
}

// Call this in the child. If the file is kept from it, leaves the placeholder to the kernel, which
// answers EBADF, and returns true.
bool withhold_if_kept(int fd) {
  const bool is_kept = [&] {
    const OpenFileRef file = g_fds.acquire(fd);
    return file && file->is_kept_from_child.load();
  }();
  if (is_kept) g_fds.forget(fd);
  return is_kept;
}

}  // namespace

void materialize_for_child(ForkSide side) {
  if (!process::owns_table()) return;
  placeholder::unpark();
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    if (!g_fds.close_on_exec(fd)) continue;
    const auto is_shared = [&] {
      const OpenFileRef file = g_fds.acquire(fd);
      return file && file->shares_offset();
    };
    if (is_shared() || (side == ForkSide::child && withhold_if_kept(fd))) continue;
    const int error = g_fds.kind(fd) == RowKind::served
                          ? materialize_accepting(fd, Accept::same_content, "fork", side)
                          : materialize_slow(fd, "fork");
    if (error < 0) share_offset(fd);
    if (error == -EMFILE && side == ForkSide::parent) keep_from_child(fd);
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

void materialize_changed(int fd, OpenFileRef& file) {
  file.reset();
  if (materialize_slow(fd, "change") == 0) return;
  file = g_fds.acquire(fd);
  if (file && !file->record->has_only_lost_its_name()) file.reset();
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

void materialize_other_names(const cache::FileStat& target, const char* call) {
  const auto type = target.mode & S_IFMT;
  const bool leads_on = type == S_IFDIR || type == S_IFLNK;
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    const OpenFileRef file = g_fds.acquire(fd);
    if (!file) continue;
    if (leads_on ? !file->record->is_physical() : file->record->stat.same_file(target))
      materialize_slow(fd, call);
  }
}

void let_writer_outlive_us(int fd, cache::Sharing how) {
  if (g_fds.kind(fd) != RowKind::writer) return;
  // The row stays, because the program may make a mapping after the fork.
  if (const OpenFileRef file = g_fds.acquire_writer(fd)) open_files::let_writing_last(*file, how);
}

void let_writers_outlive_us() {
  for (int fd = 0; fd < g_fds.end(); ++fd) let_writer_outlive_us(fd);
}

void let_inherited_writers_outlive_us() {
  for (int fd = 0; fd < g_fds.end(); ++fd) {
    // Asks the kernel whether an exec closes the fd, because F_SETFD does not update the row of a
    // writer.
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
