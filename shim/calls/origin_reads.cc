#include "shim/calls/origin_reads.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/base/process/went_out.h"
#include "cache/region/posix_locks.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/fd/replaces_fds.h"
#include "shim/process/attachment.h"

namespace cube::shim::origins {
namespace {

namespace sys = base::sys;
using cache::PartialFill;

// Bytes are fetched and copied in steps of this size, because a step fits into the processor's
// cache.
constexpr std::size_t k_step = 512 << 10;

// True if the fd refers to the file. The result stays valid while goes_on() is true for an FdEpoch
// that was made before this call.
bool is_fd_of(int fd, const OpenFile& file) { return g_fds.acquire(fd).get() == &file; }

PartialFill::Bytes bring(const OpenFile& file, int fd, std::uint64_t at, std::size_t n) {
  if (file.fill == nullptr) return PartialFill::Bytes::here;
  const cache::FdEpoch epoch(fd);
  return is_fd_of(fd, file) ? file.fill->bring(epoch, at, n) : PartialFill::Bytes::at_origin;
}

// Reads through the fd. If another thread closes the fd, the read still succeeds, as in the kernel,
// because the file is opened again. If the file cannot be opened again, the bytes are used only if
// the fd still refers to the same file.
long read_origin(const OpenFile& file, int fd, std::byte* to, std::size_t n, std::uint64_t at) {
  base::note_way_out();
  const long got = sys::pread(fd, to, n, static_cast<std::int64_t>(at));
  if (is_fd_of(fd, file)) return got;
  const cache::OriginFd again(open_origin_again(file));
  if (!again) {
    const auto now = cache::stat_fd(fd);
    return now && now->same_file(file.record->stat) ? got : -EBADF;
  }
  return sys::pread(again.get(), to, n, static_cast<std::int64_t>(at));
}

long read_some(const OpenFile& file, int fd, std::byte* to, std::size_t n, std::uint64_t at) {
  switch (bring(file, fd, at, n)) {
    case PartialFill::Bytes::here:
      base::copy_bytes(to, file.data + at, n);
      return static_cast<long>(n);
    case PartialFill::Bytes::interrupted: return -EINTR;
    case PartialFill::Bytes::at_origin: break;
  }
  return read_origin(file, fd, to, n, at);
}

// Reads an object. If there is no room for the chunks of the object, replaces the object by a copy
// of it.
long read_blocks(const OpenFile& file, int fd, std::byte* to, std::size_t n, std::uint64_t at) {
  cache::FileCache* const cache = attachment::cache();
  std::size_t done = 0;
  while (done < n) {
    const long got = cache != nullptr
                         ? cache->large().read_object(*file.large, to + done, n - done, at + done)
                         : -ENOSPC;
    if (sys::failed(got) && got != -ENOSPC) return done != 0 ? static_cast<long>(done) : got;
    if (got > 0) done += static_cast<std::size_t>(got);
    if (got > 0) continue;
    const int error = materialize_slow(fd, "read");
    if (error < 0 || is_fd_of(fd, file)) {
      base::log(base::LogLevel::error, "{}: neither memory nor the disk has room for a copy: {}",
                file.record->path_text(), base::text_of_error(-error));
      return done != 0 ? static_cast<long>(done) : -EIO;
    }
    const long rest = sys::pread(fd, to + done, n - done, static_cast<std::int64_t>(at + done));
    return sys::failed(rest) && done != 0 ? static_cast<long>(done)
                                          : rest + static_cast<long>(done);
  }
  return static_cast<long>(done);
}

// Reads n bytes. A smaller result means that the file was truncated, or that an error followed some
// bytes.
long read_at(const OpenFile& file, int fd, void* to, std::size_t n, std::uint64_t at) {
  if (file.large != nullptr) return read_blocks(file, fd, static_cast<std::byte*>(to), n, at);
  std::size_t done = 0;
  while (done < n) {
    const std::size_t step = std::min(n - done, k_step);
    const long got = read_some(file, fd, static_cast<std::byte*>(to) + done, step, at + done);
    if (sys::failed(got)) return done != 0 ? static_cast<long>(done) : got;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return static_cast<long>(done);
}

long scatter_at(const OpenFile& file, int fd, const struct ::iovec* parts, std::uint64_t at,
                std::size_t n) {
  std::size_t done = 0;
  for (int i = 0; done < n; ++i) {
    const std::size_t length = std::min(parts[i].iov_len, n - done);
    const long got = length == 0 ? 0 : read_at(file, fd, parts[i].iov_base, length, at + done);
    if (sys::failed(got)) return done != 0 ? static_cast<long>(done) : got;
    done += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < length) break;
  }
  return static_cast<long>(done);
}

long counted(OpenFile& file, long result) {
  file.count_in_steps(sys::failed(result) ? 0 : static_cast<std::uint64_t>(result));
  return result;
}

// True if the fd now refers to the kernel file that has replaced `file`.
bool has_become_kernels(int fd, const OpenFile& file) {
  const auto now = cache::stat_fd(fd, AT_STATX_DONT_SYNC);
  return now && !is_fd_of(fd, file) &&
         (file.large != nullptr ? now->is_regular() && now->size == file.size
                                : now->same_file(file.record->stat));
}

// Moves the offset back by `n` bytes, which were claimed (up to `end`) but not read. If another
// thread has materialized the file since the claim, moves the kernel's offset.
void give_back(OpenFile& file, int fd, std::uint64_t end, std::size_t n) {
  const BlockSignals block;
  const ReplacesFds replaces(file);
  std::uint64_t moved = end;
  if (file.shares_offset() ||
      (!file.offset.compare_exchange_strong(moved, end - n, std::memory_order_acq_rel) &&
       (moved & OpenFile::k_moved) != 0 && has_become_kernels(fd, file)))
    sys::lseek(fd, -static_cast<std::int64_t>(n), SEEK_CUR);
}

// Moves the offset back from the end of the claimed bytes to the end of the bytes that were read.
long told(OpenFile& file, int fd, std::uint64_t at, std::size_t claimed, long result) {
  const std::size_t got = sys::failed(result) ? 0 : static_cast<std::size_t>(result);
  if (got < claimed) give_back(file, fd, at + claimed, claimed - got);
  tell_offset(fd);
  return counted(file, result);
}

}  // namespace

long read(OpenFile& file, int fd, void* to, std::size_t n, std::uint64_t at) {
  return told(file, fd, at, n, read_at(file, fd, to, n, at));
}

long readv(OpenFile& file, int fd, const struct ::iovec* parts, std::uint64_t at, std::size_t n) {
  return told(file, fd, at, n, scatter_at(file, fd, parts, at, n));
}

long pread(OpenFile& file, int fd, void* to, std::size_t n, std::uint64_t at) {
  return counted(file, read_at(file, fd, to, n, at));
}

long preadv(OpenFile& file, int fd, const struct ::iovec* parts, std::uint64_t at, std::size_t n) {
  return counted(file, scatter_at(file, fd, parts, at, n));
}

void bring_all(OpenFile& file, int fd) {
  const cache::FdEpoch epoch(fd);
  if (is_fd_of(fd, file)) file.fill->bring_all(epoch);
}

}  // namespace cube::shim::origins
