#include "shim/calls/large_reads.h"

#include <fcntl.h>

#include <algorithm>
#include <climits>

#include "cache/base/process/went_out.h"
#include "cache/region/posix_locks.h"
#include "shim/fd/kept_file.h"
#include "shim/process/attachment.h"
#include "shim/process/user_pointer.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::large_reads {
namespace {

namespace sys = base::sys;

constexpr std::size_t k_most_bytes = 0x7ffff000;  // the kernel's maximum for one call

struct Parts {
  const struct ::iovec* parts;
  int count;
};

// Returns the total size of the parts. Returns nothing if the parts are invalid; the kernel must
// then report the error.
std::optional<std::size_t> total_of(const Parts& to) {
  if (to.count <= 0 || to.count > IOV_MAX ||
      is_bad_pointer(to.parts, sizeof *to.parts * static_cast<std::size_t>(to.count)))
    return {};
  std::size_t total = 0;
  for (int i = 0; i < to.count; ++i) {
    const struct ::iovec& part = to.parts[i];
    if (static_cast<ssize_t>(part.iov_len) < 0 || is_bad_range(part.iov_base, part.iov_len))
      return {};
    if (is_in_first_page(part.iov_base) && part.iov_len != 0) return {};
    total += std::min(part.iov_len, k_most_bytes - total);
  }
  return total;
}

// False if the file has changed, because its length may be different now.
bool may_be_shown(OpenFile& file, int fd) {
  cache::FileCache* const cache = process::is_active() ? attachment::cache() : nullptr;
  return cache != nullptr && cache->large().may_be_shown(*file.large, fd);
}

// True if the fd refers to the file. The result stays valid while goes_on() is true for an FdEpoch
// that was made before this call.
bool is_fd_of(int fd, const OpenFile& file) {
  return g_fds.acquire_kind(fd, RowKind::large).get() == &file;
}

// Reads through the fd. If another thread opens a different file under the fd, the read still reads
// the old file, as in the kernel.
long read_origin(const OpenFile& file, int fd, std::byte* to, std::size_t n, std::uint64_t at) {
  const cache::FdEpoch epoch(fd);
  const bool is_its = is_fd_of(fd, file);
  base::note_way_out();
  const long got = is_its ? sys::pread(fd, to, n, static_cast<std::int64_t>(at)) : -EBADF;
  if (is_its && epoch.goes_on()) return got;
  if (const cache::OriginFd again = file.large->reopen())
    return sys::pread(again.get(), to, n, static_cast<std::int64_t>(at));
  // Some thread has closed the fd, and the file can no longer be opened.
  return is_its && is_fd_of(fd, file) ? got : -EBADF;
}

// True if the kernel would accept the read. The kernel refuses only reads of a file that was opened
// with O_DIRECT.
bool is_accepted(const cache::LargeFile& file, const Parts& to, std::uint64_t at) {
  if (!file.is_direct()) [[likely]]
    return true;
  return std::all_of(to.parts, to.parts + to.count, [&](const struct ::iovec& part) {
    return file.accepts(part.iov_base, part.iov_len, at);
  });
}

// Makes the threads of the block reader fetch the other blocks of a read with O_DIRECT in parallel.
// The kernel, too, would request the whole read at the same time.
void fetch_other_blocks(cache::FileCache& cache, cache::LargeFile& file, int fd,
                        cache::LargeFile::FdsLeft fds_left, std::uint64_t at, std::uint64_t n) {
  const std::uint64_t block = cache.large().block();
  const cache::LargeFile::Range rest{(at / block + 1) * block, at + n};
  if (rest.is_empty() || cache.large().present_bytes(file, rest) == rest.end - rest.begin) return;
  if (auto* const reader = own_threads::reader(); reader != nullptr)
    reader->submit(file, fd, fds_left, rest);
}

// Copies the bytes [at, at + n) of the file into the parts, which must have room for them. Returns
// how many bytes were copied, or -errno if none could be copied.
long copy(OpenFile& file, int fd, const Parts& to, std::uint64_t at, std::size_t n) {
  cache::FileCache* const cache = attachment::cache();
  cache::LargeFile& large = *file.large;
  // `fds_left` and `epoch` must be loaded before the check that the fd still refers to this file.
  const cache::LargeFile::FdsLeft fds_left = large.fds_left();
  const cache::FdEpoch epoch(fd);
  std::size_t done = 0;
  for (int i = 0; i < to.count && done < n; ++i) {
    auto* const bytes = static_cast<std::byte*>(to.parts[i].iov_base);
    const std::size_t wanted = std::min(to.parts[i].iov_len, n - done);
    std::size_t got = 0;
    if (cache != nullptr && is_fd_of(fd, file)) {
      if (large.is_direct()) fetch_other_blocks(*cache, large, fd, fds_left, at + done, wanted);
      const long answer = cache->large().read(large, epoch, bytes, wanted, at + done);
      if (answer < 0 && done == 0) return answer;
      got = answer > 0 ? static_cast<std::size_t>(answer) : 0;
      file.count_in_steps(got);
    }
    while (got < wanted) {
      // At the end of a file opened with O_DIRECT, the kernel accepts the length that the program
      // passed, but not the shorter rest.
      const std::size_t asked = (large.is_direct() ? to.parts[i].iov_len : wanted) - got;
      const long rest = std::min(read_origin(file, fd, bytes + got, asked, at + done + got),
                                 static_cast<long>(wanted - got));
      if (rest < 0 && done + got == 0) return rest;
      if (rest <= 0) return static_cast<long>(done + got);
      if (cache != nullptr) cache->large().note_left_to_kernel(static_cast<std::uint64_t>(rest));
      got += static_cast<std::size_t>(rest);
    }
    done += got;
  }
  if (cache != nullptr) {
    const cache::LargeFile::Range range = cache->large().ahead(large, at, done);
    if (!range.is_empty()) {
      if (auto* const reader = own_threads::reader(); reader != nullptr)
        reader->submit(large, fd, fds_left, range);
      // Each open also offers to lead, but the program may read this file for a long time before
      // its next open.
      own_threads::offer(*cache);
    }
  }
  return static_cast<long>(done);
}

Answer read_at_offset(int fd, const Parts& to) {
  const KeptFile file(fd);
  if (!file) return {};
  const auto total = total_of(to);
  if (!total || *total == 0 || !may_be_shown(*file, fd)) return {};
  // If the kernel would refuse the read, the offset must not move at all, because another thread
  // would see the move. So check first.
  if (!is_accepted(*file->large, to, 0)) return {};
  const auto n = static_cast<std::int64_t>(*total);
  const std::int64_t size = static_cast<std::int64_t>(file->large->size());
  // The first check took time, and a seek must not move the offset of another file. So check again.
  if (!is_fd_of(fd, *file)) return {};
  const long end = sys::lseek(fd, n, SEEK_CUR);
  if (sys::failed(end)) return {};
  const std::int64_t at = end - n;
  const bool accepted = is_accepted(*file->large, to, static_cast<std::uint64_t>(at));
  const std::int64_t granted = accepted ? std::clamp<std::int64_t>(size - at, 0, n) : 0;
  // Moves the offset back before the fetch, because other threads may seek during the fetch.
  if (granted < n) sys::lseek(fd, granted - n, SEEK_CUR);
  // The file may have grown beyond its known end.
  if (granted == 0) return {};
  const long got =
      copy(*file, fd, to, static_cast<std::uint64_t>(at), static_cast<std::size_t>(granted));
  const std::int64_t moved = got > 0 ? got : 0;
  // The fd may now refer to another file, whose offset must not move.
  if (moved < granted && is_fd_of(fd, *file)) sys::lseek(fd, moved - granted, SEEK_CUR);
  return got;
}

Answer read_at(int fd, const Parts& to, std::int64_t at) {
  const KeptFile file(fd);
  if (!file || at < 0) return {};
  const auto total = total_of(to);
  if (!total || *total == 0 || !may_be_shown(*file, fd)) return {};
  const auto from = static_cast<std::uint64_t>(at), size = file->large->size();
  if (from >= size || !is_accepted(*file->large, to, from)) return {};
  return copy(*file, fd, to, from, std::min<std::uint64_t>(*total, size - from));
}

}  // namespace

bool serve(int fd, std::string_view key, bool close_on_exec, base::Counter& otherwise) {
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr) return false;
  // libc's streams read fds 0 to 2 with internal calls that bypass this library.
  if (!cache->large().are_served() || !g_fds.is_within(fd) || fd <= STDERR_FILENO) return false;
  OpenFileRef file = open_files::make();
  if (!file) return false;
  file->kind = OpenFile::Kind::large;
  file->large = cache->large().begin(key, fd);
  if (file->large == nullptr) {
    file->kind = OpenFile::Kind::served;
    if (otherwise == base::Counter::bypassed_size) otherwise = base::Counter::bypassed_busy;
    return false;
  }
  if (auto* const reader = own_threads::reader(); reader != nullptr)
    reader->mapped().opened(*file->large);
  g_fds.set(fd, RowKind::large, std::move(file), close_on_exec);
  own_threads::offer_to_read_ahead(*cache);
  return true;
}

bool bring_wanted(int fd, std::int64_t at, std::int64_t n) {
  const OpenFileRef file = g_fds.acquire_kind(fd, RowKind::large);
  cache::FileCache* const cache = process::is_active() ? attachment::cache() : nullptr;
  if (!file || cache == nullptr || at < 0 || n < 0) return false;
  cache::LargeFile& large = *file->large;
  const cache::LargeFile::FdsLeft fds_left = large.fds_left();
  const auto begin = static_cast<std::uint64_t>(at), bytes = static_cast<std::uint64_t>(n);
  const std::uint64_t end =
      n == 0 || bytes > large.size() ? large.size() : std::min(begin + bytes, large.size());
  // The file may have grown beyond its known end.
  if (begin >= end || !cache->large().may_be_shown(large, fd)) return false;
  if (cache->large().present_bytes(large, {begin, end}) == end - begin) return is_fd_of(fd, *file);
  // If another thread has closed this fd, the reader may use any other fd of the file.
  const bool is_its = is_fd_of(fd, *file);
  auto* const reader = own_threads::reader();
  const bool is_taken =
      reader != nullptr &&
      reader->submit(large, is_its ? fd : -1, fds_left, cache->large().wanted(large, {begin, end}));
  // An existing mapping of the program shows the kernel's pages, so the kernel must get the advice,
  // too.
  return is_its && is_taken && !large.own_mappings().is_any();
}

void note_advice(int fd, int advice) {
  using Advice = cache::LargeFile::Advice;
  const OpenFileRef file = g_fds.acquire_kind(fd, RowKind::large);
  if (!file) return;
  switch (advice) {
    case POSIX_FADV_NORMAL: return file->large->advise(Advice::none);
    case POSIX_FADV_SEQUENTIAL: return file->large->advise(Advice::sequential);
    case POSIX_FADV_RANDOM: return file->large->advise(Advice::random);
    default: return;
  }
}

Answer read_slow(int fd, void* to, std::size_t n) {
  if (is_bad_range(to, n)) return {};
  const struct ::iovec part = {to, std::min(n, k_most_bytes)};
  return read_at_offset(fd, {&part, 1});
}

Answer pread_slow(int fd, void* to, std::size_t n, std::int64_t at) {
  std::int64_t end = 0;
  if (is_bad_range(to, n) || __builtin_add_overflow(at, static_cast<std::int64_t>(n), &end))
    return {};
  const struct ::iovec part = {to, std::min(n, k_most_bytes)};
  return read_at(fd, {&part, 1}, at);
}

Answer readv_slow(int fd, const struct ::iovec* parts, int count) {
  return read_at_offset(fd, {parts, count});
}

Answer preadv_slow(int fd, const struct ::iovec* parts, int count, std::int64_t at) {
  return read_at(fd, {parts, count}, at);
}

}  // namespace cube::shim::large_reads
