#include "shim/calls/file_calls.h"

#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>

#include "shim/calls/mappings.h"
#include "shim/calls/origin_reads.h"
#include "shim/calls/served_directory.h"
#include "shim/calls/user_pointer.h"
#include "shim/materialize.h"
#include "shim/placeholder.h"
#include "shim/process.h"
#include "shim/real_libc.h"

namespace cube::shim::file_calls {
namespace {

namespace sys = base::sys;

constexpr unsigned long k_tcgets2 = 0x802c542a;        // TCGETS2, whose header clashes with <termios.h>
constexpr std::size_t k_most_bytes = 0x7ffff000;       // what the kernel moves in one call
constexpr std::int64_t k_sure_offset = 0xfffffff0000;  // every file system takes offsets up to here

// Libc is to be asked; a number that is only parked is closed as far as the program knows.
Answer not_served(int fd) {
  placeholder::unpark_if(fd);
  return {};
}

enum class Copies : bool { left_to_the_kernel, too };

// A served file whose bytes may be shown, or nothing: not served, or changed since (it is then a kernel file).
OpenFileRef readable(int fd, Copies copies = Copies::left_to_the_kernel) {
  OpenFileRef file = g_fds.acquire(fd);
  if (!file) return {};
  if (file->record->is_stale() && !file->is_filling()) [[unlikely]] {
    file.reset();
    materialize_slow(fd, "change");
    return {};
  }
  if (file->is_copy() && copies == Copies::left_to_the_kernel) return {};
  return file;
}

// Mode real: a call that the kernel answers at the copy's offset. Nothing where the file is being given to the kernel, at an
// offset that this call would still move: this lets go of the file and waits for whoever is at it.
template <typename Call>
Answer at_offset_of_copy(OpenFileRef& file, int fd, Call&& call, const char* caller = __builtin_FUNCTION()) {
  {
    const CopyUse use(*file);
    if (!use.is_too_late()) return call();
  }
  file.reset();
  materialize_slow(fd, caller);
  return {};
}

// Requests on one file that name another in their argument, which becomes a kernel file first.
void materialize_named_fds(unsigned long request, const void* argument) {
  switch (request) {
    case FICLONE:
    case LOOP_SET_FD:
    case LOOP_CHANGE_FD:
      materialize(static_cast<int>(reinterpret_cast<std::intptr_t>(argument)), "ioctl");
      // The device goes on writing.
      if (request != FICLONE) let_writer_outlive_us(static_cast<int>(reinterpret_cast<std::intptr_t>(argument)));
      break;
    case LOOP_CONFIGURE:
      if (is_bad_pointer(argument, sizeof(loop_config))) break;
      materialize(static_cast<int>(static_cast<const loop_config*>(argument)->fd), "ioctl");
      let_writer_outlive_us(static_cast<int>(static_cast<const loop_config*>(argument)->fd));
      break;
    case FICLONERANGE:
      if (is_bad_pointer(argument, sizeof(file_clone_range))) break;
      materialize(static_cast<int>(static_cast<const file_clone_range*>(argument)->src_fd), "ioctl");
      break;
    case FIDEDUPERANGE: {
      if (is_bad_pointer(argument, sizeof(file_dedupe_range))) break;
      const auto* const range = static_cast<const file_dedupe_range*>(argument);
      for (int i = 0; i < range->dest_count; ++i) materialize(static_cast<int>(range->info[i].dest_fd), "ioctl");
      break;
    }
    default: break;
  }
}

// As the kernel counts: where the request would end, not what the file has.
bool overflows(std::int64_t at, std::size_t n) {
  std::int64_t end = 0;
  return __builtin_add_overflow(at, static_cast<std::int64_t>(n), &end);
}

// The address of no bytes may be null, which memcpy does not allow.
void copy_out(void* to, const std::byte* from, std::size_t n) {
  if (n != 0) std::memcpy(to, from, n);
}

// Claims up to n bytes at the shared offset, as the kernel does under its position lock: two readers never get the same
// bytes. False: the file has just moved to the kernel.
bool claim(OpenFile& file, std::size_t n, std::uint64_t& at, std::size_t& granted) {
  at = file.offset.load(std::memory_order_acquire);
  do {
    if ((at & OpenFile::k_moved) != 0) return false;
    granted = at < file.size ? std::min<std::uint64_t>(n, file.size - at) : 0;
  } while (!file.offset.compare_exchange_weak(at, at + granted, std::memory_order_acq_rel));
  return true;
}

// The bytes that fit before the first null part, or -errno. `faults`: there is such a part. `asked`: of all parts.
long total_of(const struct ::iovec* parts, int count, bool& faults, std::size_t& asked) {
  faults = false;
  asked = 0;
  if (count < 0 || count > IOV_MAX) return -EINVAL;
  if (count == 0) return 0;
  if (is_bad_pointer(parts, sizeof *parts * static_cast<std::size_t>(count))) return -EFAULT;
  for (int i = 0; i < count; ++i) {
    if (static_cast<ssize_t>(parts[i].iov_len) < 0) return -EINVAL;
  }
  std::size_t total = 0;
  for (int i = 0; i < count; ++i) {
    // One part alone is cut to what a call moves before the kernel looks where it ends (since Linux 6.4).
    const std::size_t length = count == 1 ? std::min(parts[i].iov_len, k_most_bytes) : parts[i].iov_len;
    if (is_bad_range(parts[i].iov_base, length)) return -EFAULT;
    if (parts[i].iov_base == nullptr && parts[i].iov_len != 0) faults = true;
    if (!faults) total += std::min(parts[i].iov_len, k_most_bytes - total);
    asked += std::min(parts[i].iov_len, k_most_bytes - asked);
  }
  return static_cast<long>(total);
}

// `n` bytes of the file from `at` into the parts, which have room for them.
long scatter(OpenFile& file, const struct ::iovec* parts, std::uint64_t at, std::size_t n) {
  std::size_t done = 0;
  for (int i = 0; done < n; ++i) {
    const std::size_t length = std::min(parts[i].iov_len, n - done);
    copy_out(parts[i].iov_base, file.data + at + done, length);
    done += length;
  }
  file.count(done);
  return static_cast<long>(done);
}

// Nothing fits before a null part: an error, unless there is nothing to read either.
long nothing_fits(const OpenFile& file, std::uint64_t at, bool faults) { return faults && at < file.size ? -EFAULT : 0; }

// A hole begins at the end of the bytes. There is none before, unless the origin's file has fewer blocks than bytes.
bool is_sparse(const OpenFile& file) { return file.record->stat.blocks * 512 < file.size; }

}  // namespace

void follow_if_moved(const OpenFile& file, int from, int copy, bool close_on_exec) {
  if (file.is_origin()) [[unlikely]]
    follow_origin(from, copy);
  if ((file.offset.load(std::memory_order_acquire) & OpenFile::k_moved) == 0) return;
  // The copy must be of the kernel file: another thread that is at it may not have put it there yet.
  if (materialize_slow(from, "dup") < 0) return;
  // The thread that made it a kernel file either saw the copy's row and has dealt with it, or has not, and we do.
  if (g_fds.take(copy)) sys::dup3(from, copy, close_on_exec ? O_CLOEXEC : 0);
}

Answer read(int fd, void* to, std::size_t n) {
  while (OpenFileRef file = readable(fd, Copies::too)) {
    if (file->is_copy()) [[unlikely]] {
      if (const Answer done = at_offset_of_copy(file, fd, [&] { return sys::read(fd, to, n); })) return done;
      continue;
    }
    if (is_bad_range(to, n)) return -EFAULT;
    std::uint64_t at = 0;
    std::size_t granted = 0;
    if (to == nullptr && n != 0) return file->offset.load(std::memory_order_relaxed) < file->size ? -EFAULT : 0;
    if (!claim(*file, std::min(n, k_most_bytes), at, granted)) {
      file.reset();
      materialize_slow(fd);  // waits for whoever is at it
      continue;
    }
    if (file->is_origin()) [[unlikely]]
      return origins::read(*file, fd, to, granted, at);
    copy_out(to, file->data + at, granted);
    file->count(granted);
    return static_cast<long>(granted);
  }
  return {};
}

Answer pread(int fd, void* to, std::size_t n, std::int64_t at) {
  const OpenFileRef file = readable(fd);
  if (!file) return {};
  if (at < 0) return -EINVAL;
  if (is_bad_range(to, n)) return -EFAULT;
  if (overflows(at, n)) return -EINVAL;
  const auto from = static_cast<std::uint64_t>(at);
  const std::size_t granted = from < file->size ? std::min<std::uint64_t>(std::min(n, k_most_bytes), file->size - from) : 0;
  if (granted != 0) {
    if (to == nullptr) return -EFAULT;
    if (file->is_origin()) [[unlikely]]
      return origins::pread(*file, fd, to, granted, from);
    std::memcpy(to, file->data + from, granted);
  }
  file->count(granted);
  return static_cast<long>(granted);
}

Answer readv(int fd, const struct ::iovec* parts, int count) {
  while (OpenFileRef file = readable(fd, Copies::too)) {
    if (file->is_copy()) [[unlikely]] {
      const auto of_kernel = [&] { return sys::raw(SYS_readv, fd, sys::arg(parts), count); };
      if (const Answer done = at_offset_of_copy(file, fd, of_kernel)) return done;
      continue;
    }
    bool faults = false;
    std::size_t asked = 0;
    const long total = total_of(parts, count, faults, asked);
    if (total < 0) return total;
    if (total == 0) return nothing_fits(*file, file->offset.load(std::memory_order_relaxed), faults);
    std::uint64_t at = 0;
    std::size_t granted = 0;
    if (!claim(*file, static_cast<std::size_t>(total), at, granted)) {
      file.reset();
      materialize_slow(fd);
      continue;
    }
    if (file->is_origin()) [[unlikely]]
      return origins::readv(*file, fd, parts, at, granted);
    return scatter(*file, parts, at, granted);
  }
  return {};
}

Answer preadv(int fd, const struct ::iovec* parts, int count, std::int64_t at) {
  const OpenFileRef file = readable(fd);
  if (!file) return {};
  if (at < 0) return -EINVAL;
  bool faults = false;
  std::size_t asked = 0;
  const long total = total_of(parts, count, faults, asked);
  if (total < 0) return total;
  if (overflows(at, asked)) return -EINVAL;
  if (total == 0) return nothing_fits(*file, static_cast<std::uint64_t>(at), faults);
  const auto from = static_cast<std::uint64_t>(at);
  const std::size_t granted = from < file->size ? std::min<std::uint64_t>(static_cast<std::size_t>(total), file->size - from) : 0;
  if (file->is_origin()) [[unlikely]]
    return origins::preadv(*file, fd, parts, from, granted);
  return scatter(*file, parts, from, granted);
}

Answer lseek(int fd, std::int64_t offset, int whence) {
  // A memfd has no holes, takes other offsets, and ends where the file did when it was copied.
  const bool is_for_origin = whence > SEEK_END || offset > k_sure_offset;
  while (OpenFileRef file = readable(fd, Copies::too)) {
    if (file->is_copy()) [[unlikely]] {
      if (is_for_origin) {
        file.reset();
        materialize_slow(fd);
        return {};
      }
      if (const Answer done = at_offset_of_copy(file, fd, [&] { return sys::lseek(fd, offset, whence); })) return done;
      continue;
    }
    const auto size = static_cast<std::int64_t>(file->size);
    std::uint64_t current = file->offset.load(std::memory_order_acquire);
    if ((current & OpenFile::k_moved) != 0) {
      file.reset();
      materialize_slow(fd);
      continue;
    }
    std::int64_t target = 0;
    bool overflows = false;
    switch (whence) {
      case SEEK_SET: target = offset; break;
      case SEEK_CUR: overflows = __builtin_add_overflow(static_cast<std::int64_t>(current), offset, &target); break;
      case SEEK_END: overflows = __builtin_add_overflow(size, offset, &target); break;
      case SEEK_DATA:
      case SEEK_HOLE:
        // A negative offset is the begin of the file on btrfs, and an error elsewhere.
        if (offset < 0 || is_sparse(*file)) {
          file.reset();
          materialize_slow(fd);
          return {};
        }
        if (offset >= size) return -ENXIO;
        target = whence == SEEK_DATA ? offset : size;
        break;
      default: return -EINVAL;
    }
    if (overflows || target > k_sure_offset) {
      // How far one may seek depends on the file system.
      file.reset();
      materialize_slow(fd);
      return {};
    }
    if (target < 0) return -EINVAL;
    if (whence == SEEK_CUR && offset == 0) {
      file->count(0);
      return target;
    }
    if (!file->offset.compare_exchange_strong(current, static_cast<std::uint64_t>(target), std::memory_order_acq_rel)) continue;
    file->count(0);
    if (file->is_origin()) [[unlikely]]
      tell_offset(fd);
    return target;
  }
  if (const OpenFileRef directory = served_directory::acquire(fd)) return served_directory::seek(*directory, offset, whence);
  return {};
}

Answer stat(int fd, struct ::stat* st) {
  const OpenFileRef file = g_fds.acquire(fd);
  if (!file) {
    const OpenFileRef directory = served_directory::acquire(fd);
    if (!directory) return not_served(fd);
    if (is_bad_pointer(st, sizeof *st)) return -EFAULT;
    directory->directory->stat().copy_to(*st);
    return 0;
  }
  if (!file->is_current() || real::stat_is_anothers()) [[unlikely]] {
    materialize_slow(fd, "fstat");
    return {};
  }
  if (is_bad_pointer(st, sizeof *st)) return -EFAULT;
  file->record->stat.copy_to(*st);
  file->count(0);
  return 0;
}

Answer statx(int fd, unsigned mask, struct ::statx* x) {
  const OpenFileRef file = g_fds.acquire(fd);
  if (!file) {
    const OpenFileRef directory = served_directory::acquire(fd);
    if (!directory) return not_served(fd);
    if (is_bad_pointer(x, sizeof *x)) return -EFAULT;
    directory->directory->stat().copy_to(*x, mask);
    return 0;
  }
  if (!file->is_current() || !cache::FileStat::answers(mask) || !file->record->has_one_view() || real::stat_is_anothers()) {
    materialize_slow(fd);
    return {};
  }
  if (is_bad_pointer(x, sizeof *x)) return -EFAULT;
  file->record->stat.copy_to(*x, mask);
  file->count(0);
  return 0;
}

Answer ioctl(int fd, unsigned long request, void* argument) {
  materialize_named_fds(request, argument);
  if (g_fds.kind(fd) != RowKind::served) return not_served(fd);
  switch (request) {
    // The request is for a terminal; a regular file is none.
    case TCGETS:
    case k_tcgets2:
    case TIOCGWINSZ:
    case TIOCGPGRP: return -ENOTTY;
    case FIOCLEX: g_fds.set_close_on_exec(fd, true); return 0;
    case FIONCLEX: g_fds.set_close_on_exec(fd, false); return 0;
    case FIONREAD: {
      const OpenFileRef file = readable(fd);
      if (!file) return {};
      const std::uint64_t at = file->offset.load(std::memory_order_acquire);
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
    case F_GETFD: return g_fds.close_on_exec(fd) ? FD_CLOEXEC : 0;
    case F_SETFD: g_fds.set_close_on_exec(fd, (argument & FD_CLOEXEC) != 0); return 0;
    case F_GETFL: return file->flags;
    case F_DUPFD:
    case F_DUPFD_CLOEXEC: {
      if (!process::owns_table()) return {};
      placeholder::unpark();
      // A dup of the placeholder, or of the memfd in mode real. Always close-on-exec: an exec materialises the others.
      const long copy = sys::fcntl(fd, F_DUPFD_CLOEXEC, argument);
      if (copy == -EPERM || copy == -EACCES || copy == -ENOSYS) break;  // a sandbox that has dup, but not this
      if (sys::failed(copy)) return copy;
      g_fds.forget(static_cast<int>(copy));
      // Libc's own streams read 0 to 2 by calls that pass us by.
      if (!g_fds.is_within(static_cast<int>(copy)) || copy <= STDERR_FILENO) {
        sys::close(static_cast<int>(copy));
        materialize_slow(fd);
        return {};
      }
      g_fds.set(static_cast<int>(copy), RowKind::served, file.duplicate(), command == F_DUPFD_CLOEXEC);
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
  // The kernel has a use for it where it reads the file.
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
    // All of it may be touched.
    if (file->is_filling()) origins::bring_all(*file, fd);
    if (!file->record->is_stale() && mappings::map(*file, request, address) == mappings::MapResult::done) {
      file->count(std::min<std::uint64_t>(n, file->size));
      return address;
    }
  }
  materialize_slow(fd, "mmap");
  return {};
}

}  // namespace cube::shim::file_calls
