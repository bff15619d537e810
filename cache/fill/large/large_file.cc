#include "cache/fill/large/large_file.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/base/memory/lazy_pool.h"
#include "cache/fill/change_watch.h"
#include "cache/fill/kept_claim.h"
#include "cache/record/recent_change.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

using base::Counter;

// The alignment of reads with O_DIRECT. The memory address must be a multiple of `memory`; offset
// and length must be multiples of `offset`.
struct DirectUnits {
  std::uint32_t memory, offset;
};

// Asks the kernel for the units (STATX_DIOALIGN, since Linux 6.1). If they are not reported,
// assumes that whole pages are accepted.
DirectUnits direct_units_of(int fd) {
  constexpr unsigned k_asks = 0x2000;
  constexpr std::size_t k_place_of_memory = 0x98;  // libc's structure may not name these members
  const auto page = static_cast<std::uint32_t>(base::kernel_page());
  struct ::statx answer {};
  std::uint32_t said[2] = {};
  const long error = base::sys::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, k_asks, &answer);
  if (!base::sys::failed(error) && (answer.stx_mask & k_asks) != 0)
    std::memcpy(said, reinterpret_cast<const std::byte*>(&answer) + k_place_of_memory, sizeof said);
  return said[1] != 0 ? DirectUnits{std::max(said[0], 1U), said[1]} : DirectUnits{page, page};
}

constexpr std::uint32_t k_large_files = 2048;
// Larger files are not served, because the number of a chunk has only 32 bits. Sparse files can be
// larger, and an origin can report any size.
constexpr std::uint64_t k_most_size = std::uint64_t{1} << 48;

constinit base::LazyPool<LargeFile, k_large_files> g_large_pool;
constinit std::atomic<std::uint32_t> g_reached{0};

LargeFile& file_at(std::uint32_t i) { return *g_large_pool.at(i); }

}  // namespace

void LargeFile::count_use(CacheParts& parts, const Chunks::Claim& claim, const PageRun& pages) {
  if (const std::uint32_t unread = claim.take_unread(pages); unread != 0) [[unlikely]]
    parts.stats().count(Counter::block_used, unread * k_chunk_page);
}

LargeFile* LargeFile::begin(CacheParts& parts, std::string_view key, int fd) {
  if (key.size() >= PATH_MAX) return nullptr;
  // Must be constructed before the stat. A writer that starts later increments its stripe's epoch;
  // an earlier writer is still registered.
  ChangeWatch watch(parts.region);
  const auto found = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!found || found->size <= parts.rules.max_file) return nullptr;
  // Must precede the check for writers (see RecordFill::begin_watch).
  parts.ram.note_device(found->device());
  if (!watch.watch(*found, fd)) return nullptr;
  const std::uint32_t epoch =
      writer_stripe_of(parts.region, *found).epoch.load(std::memory_order_seq_cst);
  // This stat identifies the version whose chunks are served.
  const auto stat = stat_fd(fd, k_ask_server);
  if (!stat || !stat->same_file(*found) || !stat->is_regular() ||
      stat->size <= parts.rules.max_file || stat->size > k_most_size)
    return nullptr;
  const std::uint64_t now = base::wall_ns();
  const bool may_change = parts.rules.consistency != base::ConsistencyKind::immutable;
  if (may_hide_change(*stat, now) || (may_change && is_within_step(stat->modified, now)))
    return nullptr;
  // Through an fd that cannot be read (O_WRONLY, O_PATH, invalid), the program must not get bytes
  // that other programs have read.
  const long flags = base::sys::fcntl(fd, F_GETFL, 0);
  const bool may_read = !base::sys::failed(flags) && (flags & O_PATH) == 0 &&
                        ((flags & O_ACCMODE) == O_RDONLY || (flags & O_ACCMODE) == O_RDWR);
  if (!may_read || base::sys::failed(base::sys::lseek(fd, 0, SEEK_CUR))) return nullptr;
  LargeFile* const file = take(parts, key, *stat);
  if (file == nullptr) return nullptr;
  file->epoch_.store(epoch, std::memory_order_relaxed);
  file->note_flags(fd, static_cast<int>(flags));
  return file;
}

LargeFile* LargeFile::take(CacheParts& parts, std::string_view key, const FileStat& stat) {
  for (std::uint32_t i = 0; i < k_large_files; ++i) {
    if (!g_large_pool.prepare(i + 1)) return nullptr;
    LargeFile& file = file_at(i);
    std::uint32_t none = 0;
    if (!file.refs_.compare_exchange_strong(none, 1, std::memory_order_acquire)) continue;
    std::uint32_t reached = g_reached.load(std::memory_order_relaxed);
    while (reached <= i &&
           !g_reached.compare_exchange_weak(reached, i + 1, std::memory_order_relaxed)) {
    }
    file.region_.store(parts.region.header().created_ns, std::memory_order_relaxed);
    file.looked_ns_.store(base::coarse_monotonic_ns(), std::memory_order_relaxed);
    file.is_over_.store(false, std::memory_order_relaxed);
    file.is_fetched_ahead_.store(false, std::memory_order_relaxed);
    file.first_place_.store(0, std::memory_order_relaxed);
    file.next_.store(0, std::memory_order_relaxed);
    file.ahead_end_.store(0, std::memory_order_relaxed);
    file.window_.store(0, std::memory_order_relaxed);
    file.wanted_block_.store(0, std::memory_order_relaxed);
    file.locks_.store(0, std::memory_order_relaxed);
    file.stat_ = stat;
    file.key_ = key_of_file(key, stat);
    std::memcpy(file.named_.path, key.data(), key.size());
    file.named_.path[key.size()] = '\0';
    return &file;
  }
  return nullptr;
}

void LargeFile::note_flags(int fd, int flags) {
  const bool is_direct = (flags & O_DIRECT) != 0;
  const DirectUnits units = is_direct ? direct_units_of(fd) : DirectUnits{0, 0};
  direct_memory_unit_ = units.memory;
  direct_unit_ = units.offset;
  // With O_DIRECT, the kernel keeps no pages of the file, and reads nothing ahead.
  kernel_pages_.store(is_direct ? KernelPages::none : KernelPages::unknown,
                      std::memory_order_relaxed);
  advice_.store(is_direct ? Advice::random : Advice::none, std::memory_order_relaxed);
}

bool LargeFile::reserve() { return g_large_pool.reserve(); }

std::span<const std::byte> LargeFile::memory() { return g_large_pool.memory(); }

void LargeFile::end() { refs_.fetch_sub(1, std::memory_order_release); }

void LargeFile::forget_users() {
  Chunks::forget_claims();
  forget_full();
  forget_ranks();
  for (std::uint32_t i = 0, n = g_reached.load(std::memory_order_relaxed); i < n; ++i) {
    file_at(i).copies_.forget();
    file_at(i).own_mappings_.forget();
    if (file_at(i).is_fetched_ahead_.load(std::memory_order_relaxed))
      file_at(i).refs_.store(0, std::memory_order_relaxed);
  }
}

void LargeFile::look_after_lock(CacheParts& parts, int fd) {
  parts.stats().count(Counter::origin_stats);
  if (!is_version_of(fd)) is_over_.store(true, std::memory_order_relaxed);
}

bool LargeFile::is_version_of(int fd) const {
  // Without an fd, uses the path, because a mapping can outlive its fd.
  const auto now =
      fd >= 0 ? stat_fd(fd, k_ask_server) : stat_path(AT_FDCWD, named_.path, k_ask_server);
  return now && now->is_unchanged_since(stat_);
}

// Whether this open may still be served. Asks the server only if the file may have been changed
// through the shim since the last revalidation.
bool LargeFile::is_current(CacheParts& parts, int fd) {
  if (is_over_.load(std::memory_order_relaxed)) return false;
  const std::uint32_t epoch =
      writer_stripe_of(parts.region, stat_).epoch.load(std::memory_order_seq_cst);
  const bool is_same = epoch == epoch_.load(std::memory_order_relaxed) &&
                       region_.load(std::memory_order_relaxed) == parts.region.header().created_ns;
  return is_same || look_again(parts, fd);
}

bool LargeFile::look_again(CacheParts& parts, int fd) {
  const std::uint32_t epoch =
      writer_stripe_of(parts.region, stat_).epoch.load(std::memory_order_seq_cst);
  std::uint64_t removals = 0;
  parts.stats().count(Counter::origin_stats);
  // may_be_written() gets no fd, because with an fd it would take a lease, which would replace a
  // lease of the program.
  if (may_be_written(parts.region, stat_, -1, &removals) || removals != 0 || !is_version_of(fd)) {
    is_over_.store(true, std::memory_order_relaxed);
    return false;
  }
  looked_ns_.store(base::coarse_monotonic_ns(), std::memory_order_relaxed);
  region_.store(parts.region.header().created_ns, std::memory_order_relaxed);
  epoch_.store(epoch, std::memory_order_relaxed);
  return true;
}

std::uint32_t LargeFile::place_of(Chunks& chunks, std::uint32_t number) {
  std::uint32_t first = first_place_.load(std::memory_order_relaxed);
  if (first == 0) {
    // Another process may already have placed a chunk of the file.
    for (const std::uint32_t other : {0U, number - 1, number + 1}) {
      const auto claim = chunks.find(key_, other);
      if (claim && !claim.is_passing() && claim.place() >= other) first = claim.place() - other + 1;
      if (first != 0) break;
    }
    if (first == 0) {
      const std::uint32_t place = chunks.place_for(chunk_of(stat_.size - 1) + 1);
      if (place == Chunks::k_none) return Chunks::k_none;
      first = place + 1;
    }
    std::uint32_t unknown = 0;
    if (!first_place_.compare_exchange_strong(unknown, first, std::memory_order_relaxed))
      first = unknown;
  }
  return first - 1 + number;
}

// Always passes the same hint, so that all lookups find the same chunk even if two processes have
// made it twice.
Chunks::Claim LargeFile::find(const Chunks& chunks, std::uint32_t number) const {
  const std::uint32_t first = first_place_.load(std::memory_order_relaxed);
  return chunks.find(key_, number, first != 0 ? first - 1 + number : Chunks::k_none);
}

std::uint64_t LargeFile::block_hash(std::uint64_t at, std::uint64_t block) const {
  return block_hash_of(key_, at / block);
}

std::size_t LargeFile::copy_present(CacheParts& parts, std::byte* to, std::size_t n,
                                    std::uint64_t at) const {
  const std::uint64_t in_chunk = at % k_chunk_bytes;
  const std::uint64_t room = std::min<std::uint64_t>(n, k_chunk_bytes - in_chunk);
  const KeptClaim claim(find(chunks(parts), chunk_of(at)));
  if (!claim) return 0;
  const PageRun pages = claim->present_from(page_of(at), pages_of(at, at + room).end);
  if (pages.is_empty()) return 0;
  const std::uint64_t got = std::min(room, pages.end * k_chunk_page - in_chunk);
  base::copy_bytes(to, claim->data() + in_chunk, got);
  count_use(parts, *claim, pages_of(at, at + got));
  return got;
}

long LargeFile::read(CacheParts& parts, const FdEpoch& fd, std::byte* to, std::size_t n,
                     std::uint64_t at) {
  if (!is_current(parts, fd.fd())) return 0;
  std::size_t done = 0;
  bool has_waited = false;
  std::uint64_t fetched_at = UINT64_MAX;
  while (done < n) {
    const std::uint64_t from = at + done;
    if (const std::size_t got = copy_present(parts, to + done, n - done, from); got != 0) {
      done += got;
      continue;
    }
    // The page was fetched, but its chunk was replaced before the copy, so the kernel answers.
    if (std::exchange(fetched_at, from) == from) break;
    has_waited = true;
    const Fetched fetched =
        fetch(parts, {.fd = fd.fd(), .of_program = &fd, .begin = at, .bytes = n}, from, n - done);
    if (fetched == Fetched::here) continue;
    if (fetched == Fetched::interrupted && done == 0) return -EINTR;
    break;
  }
  parts.stats().count(has_waited ? Counter::block_misses : Counter::block_hits);
  parts.stats().count(Counter::block_read, done);
  parts.region.note_read(done);
  return static_cast<long>(done);
}

}  // namespace cube::cache
