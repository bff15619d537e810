// file_calls: read and its variants, and lseek.
#include <algorithm>

#include "cache/base/memory/copy_bytes.h"
#include "shim/calls/directory/unmounted_directory.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/large_reads.h"
#include "shim/calls/origin_reads.h"
#include "shim/calls/readable.h"
#include "shim/fd/materialize.h"
#include "shim/process/user_pointer.h"

namespace cube::shim::file_calls {
namespace {

namespace sys = base::sys;

constexpr std::size_t k_most_bytes = 0x7ffff000;       // the kernel's maximum for one call
constexpr std::int64_t k_sure_offset = 0xfffffff0000;  // every file system accepts this offset

// In mode real, makes a call that the kernel answers at the copy's offset. If another thread is
// materializing the file, the call could move the offset too late. In that case, does not make the
// call, releases the file, waits for the other thread and returns nothing.
template <typename Call>
Answer at_offset_of_copy(OpenFileRef& file, int fd, Call&& call,
                         const char* caller = __builtin_FUNCTION()) {
  {
    const CopyUse use(*file);
    if (!use.is_too_late()) return call();
  }
  file.reset();
  materialize_slow(fd, caller);
  return {};
}

// Like the kernel, checks the end of the request against the largest offset, not against the file's
// size.
bool overflows(std::int64_t at, std::size_t n) {
  std::int64_t end = 0;
  return __builtin_add_overflow(at, static_cast<std::int64_t>(n), &end);
}

// Claims up to n bytes at the shared offset. As under the kernel's position lock, two readers never
// get the same bytes. Returns false if the file has just been materialized.
bool claim(OpenFile& file, std::size_t n, std::uint64_t& at, std::size_t& granted) {
  at = file.offset.load(std::memory_order_acquire);
  do {
    if ((at & OpenFile::k_moved) != 0) return false;
    granted = at < file.size ? std::min<std::uint64_t>(n, file.size - at) : 0;
  } while (!file.offset.compare_exchange_weak(at, at + granted, std::memory_order_acq_rel));
  return true;
}

// Returns the total size of the parts before the first part with a bad address, or -errno. Sets
// `faults` if there is such a part, and `asked` to the total size of all parts.
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
    // Since Linux 6.4, the kernel shortens a single part to its maximum for one call before it
    // checks the end of the part.
    const std::size_t length =
        count == 1 ? std::min(parts[i].iov_len, k_most_bytes) : parts[i].iov_len;
    if (is_bad_range(parts[i].iov_base, length)) return -EFAULT;
    if (is_in_first_page(parts[i].iov_base) && parts[i].iov_len != 0) faults = true;
    if (!faults) total += std::min(parts[i].iov_len, k_most_bytes - total);
    asked += std::min(parts[i].iov_len, k_most_bytes - asked);
  }
  return static_cast<long>(total);
}

// Copies `n` bytes of the file from `at` into the parts, which must have room for them.
long scatter(OpenFile& file, const struct ::iovec* parts, std::uint64_t at, std::size_t n) {
  std::size_t done = 0;
  for (int i = 0; done < n; ++i) {
    const std::size_t length = std::min(parts[i].iov_len, n - done);
    base::copy_bytes(parts[i].iov_base, file.data + at + done, length);
    done += length;
  }
  file.count(done);
  return static_cast<long>(done);
}

// Returns the result if nothing fits before the first part with a bad address: an error if bytes
// are left in the file, otherwise 0.
long nothing_fits(const OpenFile& file, std::uint64_t at, bool faults) {
  return faults && at < file.size ? -EFAULT : 0;
}

// Reads at the offset that the kernel keeps for parent and child (share_offset).
long read_at_shared_offset(OpenFile& file, int fd, const struct ::iovec* parts, int count) {
  bool faults = false;
  std::size_t asked = 0;
  const long total = total_of(parts, count, faults, asked);
  if (total < 0) return total;
  const long end = sys::lseek(fd, total, SEEK_CUR);
  if (sys::failed(end)) return end;
  const auto at = static_cast<std::uint64_t>(end - total);
  if (total == 0) return nothing_fits(file, at, faults);
  const auto granted = at < file.size ? std::min<std::uint64_t>(total, file.size - at) : 0;
  const long got = granted == 0 ? 0 : origins::preadv(file, fd, parts, at, granted);
  if (got < total) sys::lseek(fd, std::max(got, 0L) - total, SEEK_CUR);
  return got;
}

// True if the origin's file has fewer blocks than bytes, and so may have holes. In all other files,
// the only hole begins at the end.
bool is_sparse(const OpenFile& file) { return file.record->stat.blocks * 512 < file.size; }

}  // namespace

Answer read(int fd, void* to, std::size_t n) {
  while (OpenFileRef file = readable(fd, Copies::too)) {
    if (file->is_copy()) [[unlikely]] {
      const iovec part{to, n};
      const auto of_kernel = [&] {
        return file->shares_offset() ? read_at_shared_offset(*file, fd, &part, 1)
                                     : sys::read(fd, to, n);
      };
      if (const Answer done = at_offset_of_copy(file, fd, of_kernel)) return done;
      continue;
    }
    if (is_bad_range(to, n)) return -EFAULT;
    std::uint64_t at = 0;
    std::size_t granted = 0;
    if (is_in_first_page(to) && n != 0)
      return file->offset.load(std::memory_order_relaxed) < file->size ? -EFAULT : 0;
    if (!claim(*file, std::min(n, k_most_bytes), at, granted)) {
      file.reset();
      materialize_slow(fd);  // waits for the materializing thread
      continue;
    }
    if (!file->has_bytes()) [[unlikely]]
      return origins::read(*file, fd, to, granted, at);
    base::copy_bytes(to, file->data + at, granted);
    file->count(granted);
    return static_cast<long>(granted);
  }
  return large_reads::read(fd, to, n);
}

Answer pread(int fd, void* to, std::size_t n, std::int64_t at) {
  const OpenFileRef file = readable(fd);
  if (!file) return large_reads::pread(fd, to, n, at);
  if (at < 0) return -EINVAL;
  if (is_bad_range(to, n)) return -EFAULT;
  if (overflows(at, n)) return -EINVAL;
  const auto from = static_cast<std::uint64_t>(at);
  const std::size_t granted =
      from < file->size ? std::min<std::uint64_t>(std::min(n, k_most_bytes), file->size - from) : 0;
  if (granted != 0) {
    if (is_in_first_page(to)) return -EFAULT;
    if (!file->has_bytes()) [[unlikely]]
      return origins::pread(*file, fd, to, granted, from);
    base::copy_bytes(to, file->data + from, granted);
  }
  file->count(granted);
  return static_cast<long>(granted);
}

Answer readv(int fd, const struct ::iovec* parts, int count) {
  while (OpenFileRef file = readable(fd, Copies::too)) {
    if (file->is_copy()) [[unlikely]] {
      const auto of_kernel = [&] {
        return file->shares_offset() ? read_at_shared_offset(*file, fd, parts, count)
                                     : sys::raw(SYS_readv, fd, sys::arg(parts), count);
      };
      if (const Answer done = at_offset_of_copy(file, fd, of_kernel)) return done;
      continue;
    }
    bool faults = false;
    std::size_t asked = 0;
    const long total = total_of(parts, count, faults, asked);
    if (total < 0) return total;
    if (total == 0)
      return nothing_fits(*file, file->offset.load(std::memory_order_relaxed), faults);
    std::uint64_t at = 0;
    std::size_t granted = 0;
    if (!claim(*file, static_cast<std::size_t>(total), at, granted)) {
      file.reset();
      materialize_slow(fd);
      continue;
    }
    if (!file->has_bytes()) [[unlikely]]
      return origins::readv(*file, fd, parts, at, granted);
    return scatter(*file, parts, at, granted);
  }
  return large_reads::readv(fd, parts, count);
}

Answer preadv(int fd, const struct ::iovec* parts, int count, std::int64_t at) {
  const OpenFileRef file = readable(fd);
  if (!file) return large_reads::preadv(fd, parts, count, at);
  if (at < 0) return -EINVAL;
  bool faults = false;
  std::size_t asked = 0;
  const long total = total_of(parts, count, faults, asked);
  if (total < 0) return total;
  if (overflows(at, asked)) return -EINVAL;
  if (total == 0) return nothing_fits(*file, static_cast<std::uint64_t>(at), faults);
  const auto from = static_cast<std::uint64_t>(at);
  const std::size_t granted =
      from < file->size
          ? std::min<std::uint64_t>(static_cast<std::size_t>(total), file->size - from)
          : 0;
  if (!file->has_bytes()) [[unlikely]]
    return origins::preadv(*file, fd, parts, from, granted);
  return scatter(*file, parts, from, granted);
}

Answer preadv2(int fd, const struct ::iovec* parts, int count, std::int64_t at, int flags) {
  // The file system decides which flags are valid.
  if (flags != 0) {
    materialize(fd);
    if (large_reads::is_large(fd)) return {};
  }
  return at == -1 ? file_calls::readv(fd, parts, count) : file_calls::preadv(fd, parts, count, at);
}

Answer lseek(int fd, std::int64_t offset, int whence) {
  // A memfd has no holes, and its limit for offsets differs. Its end is the end that the file had
  // when it was copied.
  const bool is_for_origin = whence > SEEK_END || offset > k_sure_offset;
  while (OpenFileRef file = readable(fd, Copies::too)) {
    if (file->is_copy()) [[unlikely]] {
      if (is_for_origin) {
        file.reset();
        materialize_slow(fd);
        return {};
      }
      // A memfd that only keeps the offset is empty, so its end is not the end of the file.
      const bool is_from_end = whence == SEEK_END && file->shares_offset();
      const auto of_kernel = [&, size = static_cast<std::int64_t>(file->size)] {
        return is_from_end ? sys::lseek(fd, size + offset, SEEK_SET)
                           : sys::lseek(fd, offset, whence);
      };
      if (const Answer done = at_offset_of_copy(file, fd, of_kernel)) return done;
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
      case SEEK_CUR:
        overflows = __builtin_add_overflow(static_cast<std::int64_t>(current), offset, &target);
        break;
      case SEEK_END: overflows = __builtin_add_overflow(size, offset, &target); break;
      case SEEK_DATA:
      case SEEK_HOLE:
        // btrfs treats a negative offset as the beginning of the file; other file systems return an
        // error.
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
      // The file system decides how far a program may seek.
      file.reset();
      materialize_slow(fd);
      return {};
    }
    if (target < 0) return -EINVAL;
    if (whence == SEEK_CUR && offset == 0) {
      file->count(0);
      return target;
    }
    if (!file->offset.compare_exchange_strong(current, static_cast<std::uint64_t>(target),
                                              std::memory_order_acq_rel))
      continue;
    file->count(0);
    if (file->is_origin()) [[unlikely]]
      tell_offset(fd);
    return target;
  }
  if (const OpenFileRef directory = unmounted_directory::acquire(fd))
    return unmounted_directory::seek(*directory, offset, whence);
  return {};
}

}  // namespace cube::shim::file_calls
