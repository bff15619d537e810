#include "shim/calls/file_calls.h"

#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "shim/calls/map/large_maps.h"
#include "shim/calls/map/mappings.h"
#include "shim/calls/origin_reads.h"
#include "shim/calls/readable.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/process/process.h"
#include "shim/process/user_pointer.h"

namespace cube::shim::file_calls {
namespace {

namespace sys = base::sys;

constexpr unsigned long k_tcgets2 = 0x802c542a;  // TCGETS2, whose header conflicts with <termios.h>

// Leaves the call to libc. Closes a parked fd first, because the program has already closed it.
Answer not_served(int fd) {
  placeholder::unpark_if(fd);
  return {};
}

// Materializes the file that the argument of some requests names.
void materialize_named_fds(unsigned long request, const void* argument) {
  switch (request) {
    case FICLONE:
    case LOOP_SET_FD:
    case LOOP_CHANGE_FD:
      materialize(static_cast<int>(reinterpret_cast<std::intptr_t>(argument)), "ioctl");
      // A loop device continues to write to its file after the close.
      if (request != FICLONE)
        let_writer_outlive_us(static_cast<int>(reinterpret_cast<std::intptr_t>(argument)));
      break;
    case LOOP_CONFIGURE:
      if (is_bad_pointer(argument, sizeof(loop_config))) break;
      materialize(static_cast<int>(static_cast<const loop_config*>(argument)->fd), "ioctl");
      let_writer_outlive_us(static_cast<int>(static_cast<const loop_config*>(argument)->fd));
      break;
    case FICLONERANGE:
      if (is_bad_pointer(argument, sizeof(file_clone_range))) break;
      materialize(static_cast<int>(static_cast<const file_clone_range*>(argument)->src_fd),
                  "ioctl");
      break;
    case FIDEDUPERANGE: {
      if (is_bad_pointer(argument, sizeof(file_dedupe_range))) break;
      const auto* const range = static_cast<const file_dedupe_range*>(argument);
      for (int i = 0; i < range->dest_count; ++i)
        materialize(static_cast<int>(range->info[i].dest_fd), "ioctl");
      break;
    }
    default: break;
  }
}

// Whether this fd in the kernel is a dup of the origin's file, and not of the placeholder. A close
// of such a dup would drop the program's POSIX locks on the file.
bool is_origin_at(const OpenFile& file, int fd) {
  const long flags = file.is_origin() ? sys::fcntl(fd, F_GETFL) : O_PATH;
  return !sys::failed(flags) && (flags & O_PATH) == 0;
}

}  // namespace

void follow_if_moved(const OpenFile& file, int from, int copy, bool close_on_exec) {
  // The copy already has a row. Now check whether another thread is materializing the file. The
  // materializing thread announces itself before it checks the rows (tell_before_rows in
  // materialize.cc), so at least one of the two threads notices the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (file.is_origin()) [[unlikely]]
    follow_origin(from, copy);
  if ((file.offset.load(std::memory_order_acquire) & OpenFile::k_moved) == 0) return;
  // `copy` must be a dup of the kernel file. Wait until `from` refers to the kernel file.
  if (materialize_slow(from, "dup") < 0) return;
  // If the row still exists, the materializing thread has not seen it, so this thread replaces
  // `copy`.
  if (!g_fds.take(copy)) return;
  if (is_origin_at(file, copy))
    sys::fcntl(copy, F_SETFD, close_on_exec ? FD_CLOEXEC : 0);
  else
    sys::dup3(from, copy, close_on_exec ? O_CLOEXEC : 0);
}

Answer ioctl(int fd, unsigned long request, void* argument) {
  materialize_named_fds(request, argument);
  if (g_fds.kind(fd) != RowKind::served) return not_served(fd);
  switch (request) {
    // These requests need a terminal, and fail on a regular file.
    case TCGETS:
    case k_tcgets2:
    case TIOCGWINSZ:
    case TIOCGPGRP: return -ENOTTY;
    case FIOCLEX:
    case FIONCLEX:
      if (g_fds.set_close_on_exec(fd, request == FIOCLEX)) return 0;
      break;
    case FIONREAD: {
      const OpenFileRef file = readable(fd);
      if (!file) return {};
      // A failed lseek has the bit k_moved.
      const std::uint64_t at = file->shares_offset()
                                   ? static_cast<std::uint64_t>(sys::lseek(fd, 0, SEEK_CUR))
                                   : file->offset.load(std::memory_order_acquire);
      if ((at & OpenFile::k_moved) != 0 || is_bad_pointer(argument, sizeof(int))) break;
      *static_cast<int*>(argument) = static_cast<int>(file->size - at);
      file->count(0);
      return 0;
    }
    default: break;
  }
  materialize_slow(fd);
  return {};
}

Answer fcntl(int fd, int command, long argument) {
  const OpenFileRef file = g_fds.acquire(fd);
  if (!file) return not_served(fd);
  switch (command) {
    case F_GETFD:
      if (const auto on = g_fds.close_on_exec(fd)) return *on ? FD_CLOEXEC : 0;
      break;
    case F_SETFD:
      if (g_fds.set_close_on_exec(fd, (argument & FD_CLOEXEC) != 0)) return 0;
      break;
    case F_GETFL: return file->flags;
    case F_DUPFD:
    case F_DUPFD_CLOEXEC: {
      if (!process::owns_table()) return {};
      placeholder::unpark();
      // Dups the placeholder, or the memfd in mode real. The kernel's fd is always close-on-exec,
      // because before an exec all inherited files are materialized.
      const long copy = sys::fcntl(fd, F_DUPFD_CLOEXEC, argument);
      if (copy == -EPERM || copy == -EACCES || copy == -ENOSYS)
        break;  // a sandbox may allow dup, but not fcntl
      if (sys::failed(copy)) return copy;
      g_fds.forget(static_cast<int>(copy));
      // libc's streams read fds 0 to 2 with internal calls that bypass this library.
      if (!g_fds.is_within(static_cast<int>(copy)) || copy <= STDERR_FILENO) {
        const bool is_origin = is_origin_at(*file, static_cast<int>(copy));
        if (!is_origin) sys::close(static_cast<int>(copy));
        materialize_slow(fd);
        if (!is_origin) return {};
        sys::fcntl(static_cast<int>(copy), F_SETFD, command == F_DUPFD_CLOEXEC ? FD_CLOEXEC : 0);
        return copy;
      }
      g_fds.set(static_cast<int>(copy), RowKind::served, file.duplicate(),
                command == F_DUPFD_CLOEXEC);
      file->count(0);
      follow_if_moved(*file, fd, static_cast<int>(copy), command == F_DUPFD_CLOEXEC);
      return copy;
    }
    default: break;
  }
  materialize_slow(fd);
  return {};
}

Answer advise(int fd) {
  const OpenFileRef file = g_fds.acquire(fd);
  // If the kernel reads the file, the kernel can use the advice.
  if (!file || file->is_origin()) return {};
  file->count(0);
  return 0;
}

Answer map(int fd, void* at, std::size_t n, int protection, int flags, std::int64_t offset) {
  {
    const OpenFileRef file = g_fds.acquire(fd);
    if (!file) return {};
    long address = 0;
    const mappings::MapRequest request{at, n, protection, flags, offset};
    if (file->large != nullptr) {
      if (const Answer done = large_maps::map_object(*file, request)) return done;
    }
    // The program may access any page of the mapping.
    if (file->is_filling()) origins::bring_all(*file, fd);
    if (file->large == nullptr && !file->record->is_stale() &&
        mappings::map(*file, request, address) == mappings::MapResult::done) {
      // The open has counted the bytes of a copy.
      file->count_in_steps(file->is_copy() ? 0 : std::min<std::uint64_t>(n, file->size));
      return address;
    }
  }
  materialize_slow(fd, "mmap");
  return {};
}

}  // namespace cube::shim::file_calls
