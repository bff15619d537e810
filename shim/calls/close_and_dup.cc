// file_calls: calls that change what an fd refers to, such as close and dup.
#include <algorithm>
#include <climits>

#include "shim/calls/file_calls.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/process/process.h"

namespace cube::shim::file_calls {

namespace sys = base::sys;

Answer close(int fd) {
  if (g_fds.kind(fd) == RowKind::none) {
    // The program has closed this fd already.
    if (placeholder::is_parked(fd) && process::owns_table()) return -EBADF;
    return {};
  }
  if (g_fds.kind(fd) != RowKind::served) return {};
  if (!process::owns_table()) return {};
  const OpenFileRef file = g_fds.take(fd);
  if (!file) return {};
  if (!file->is_placeholder() || file->kind != OpenFile::Kind::served) {
    // Until the close, no other file can get this fd.
    if (file->fill != nullptr && file->refs.load(std::memory_order_acquire) == 1)
      file->fill->finish_at_close(fd);
    const std::uint32_t kept = cache::PosixLocks::forget_and_mark(fd);
    sys::close(fd);
    placeholder::fd_was_freed(fd);
    cache::PosixLocks::close_kept(kept);
  } else {
    placeholder::release(fd);
  }
  return 0;
}

ClosingFd::~ClosingFd() {
  if (fd_ >= 0) placeholder::note_freed(fd_);
  cache::PosixLocks::close_kept(kept_);
}

ClosingFd note_close(int fd) {
  if (!process::owns_table()) return {};
  placeholder::unpark();
  const std::uint32_t kept = cache::PosixLocks::forget_and_mark(fd);
  // Most fds have no row.
  return {fd, g_fds.kind(fd) == RowKind::none ? OpenFileRef() : g_fds.take(fd), kept};
}

ClosingFd note_replaced(int fd, int to) {
  if (!cache::PosixLocks::is_any_noted() || fd == to || !process::owns_table() ||
      sys::failed(sys::fcntl(fd, F_GETFD)))
    return {};
  return {-1, OpenFileRef(), cache::PosixLocks::forget_and_mark(to)};
}

Answer dup(int fd) { return fcntl(fd, F_DUPFD, 0); }

Answer dup_to(int fd, int to, int flags, bool same_is_error) {
  if (fd == to) {
    if (g_fds.kind(fd) != RowKind::served) {
      placeholder::unpark_if(fd);
      return {};
    }
    return same_is_error ? -EINVAL : to;
  }
  bool from_served = g_fds.kind(fd) == RowKind::served;
  // libc's streams may be reading the fd `to` with internal calls that bypass this library. In that
  // case, the fd must get a kernel file.
  if (from_served && (to <= STDERR_FILENO || (g_fds.kind(to) != RowKind::served &&
                                              !sys::failed(sys::fcntl(to, F_GETFD))))) {
    placeholder::unpark_if(to);
    if (const int error = materialize_slow(fd, "dup2"); error != 0) return error;
    from_served = false;
  }
  const bool to_known = g_fds.kind(to) != RowKind::none;
  if ((!from_served && !to_known) || !g_fds.is_within(to)) {
    if (from_served) materialize_slow(fd, "dup2");
    if (process::owns_table()) placeholder::unpark();
    return {};
  }
  if (!process::owns_table()) return {};
  placeholder::unpark();
  const BlockSignals block;
  // The row may also belong to a kernel file.
  const RowKind from_kind = g_fds.kind(fd);
  const bool is_kernels = is_of_kernel(from_kind);
  OpenFileRef file = is_kernels ? g_fds.acquire_kind(fd, from_kind) : g_fds.acquire(fd);
  const std::uint64_t before = g_fds.lock(to);
  const long result = sys::dup3(fd, to, file && !is_kernels ? O_CLOEXEC : flags);
  if (sys::failed(result)) {
    g_fds.unlock(to, before);
    return result;
  }
  OpenFileRef replaced = FdTable::reference_in(before);
  if (file) {
    const OpenFileRef kept = file.duplicate();
    g_fds.set(to, is_kernels ? from_kind : RowKind::served, std::move(file),
              (flags & O_CLOEXEC) != 0);
    if (!is_kernels) follow_if_moved(*kept, fd, to, (flags & O_CLOEXEC) != 0);
  } else {
    g_fds.unlock(to, 0);
  }
  return result;
}

void range_is_closed(unsigned first) {
  if (!process::owns_table()) return;
  placeholder::note_freed(static_cast<int>(std::min<unsigned>(first, INT_MAX)));
  cache::PosixLocks::close_all_kept();
}

void close_range(unsigned first, unsigned last, int flags) {
  constexpr int k_close_on_exec = 1 << 2, k_unshare = 1 << 1;
  if (!process::owns_table()) return;
  // The shim has one table of fds, which cannot describe a thread with separate fds.
  if ((flags & k_unshare) != 0) {
    materialize_all(/*only_inherited=*/false, "close_range");
    let_writers_outlive_us();
    process::disable("close_range with CLOSE_RANGE_UNSHARE");
    return;
  }
  if (first > last || (flags & ~k_close_on_exec) != 0) return;
  const bool closes = flags == 0;
  if (closes) {
    placeholder::forget_parked_in(first, last);
    cache::PosixLocks::forget(first, last);
    placeholder::unpark();
  }
  const auto end =
      std::min<unsigned>(last == UINT_MAX ? last : last + 1, static_cast<unsigned>(g_fds.end()));
  for (unsigned fd = first; fd < end; ++fd) {
    if (closes) {
      g_fds.forget(static_cast<int>(fd));
    } else {
      g_fds.set_close_on_exec(static_cast<int>(fd), true);
    }
  }
}

}  // namespace cube::shim::file_calls
