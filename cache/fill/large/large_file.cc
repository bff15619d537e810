#include "cache/fill/large/large_file.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/base/memory/held.h"
#include "cache/base/memory/lazy_pool.h"
#include "cache/base/process/block_signals.h"
#include "cache/fill/change_watch.h"
#include "cache/fill/kept_claim.h"
#include "cache/record/recent_change.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

using base::Counter;

// A read with O_DIRECT needs an offset, a length and memory that are multiples of these.
struct DirectUnits {
  std::uint32_t memory, offset;
};

// Asks the kernel (STATX_DIOALIGN, since 6.1). If the file system does not say, whole pages will
// do.
DirectUnits direct_units_of(int fd) {
  constexpr unsigned k_asks = 0x2000;
  constexpr std::size_t k_place_of_memory = 0x98;  // libc's structure may have no names for them
  const auto page = static_cast<std::uint32_t>(base::kernel_page());
  struct ::statx answer {};
  std::uint32_t said[2] = {};
  const long error = base::sys::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, k_asks, &answer);
  if (!base::sys::failed(error) && (answer.stx_mask & k_asks) != 0)
    std::memcpy(said, reinterpret_cast<const std::byte*>(&answer) + k_place_of_memory, sizeof said);
  return said[1] != 0 ? DirectUnits{std::max(said[0], 1U), said[1]} : DirectUnits{page, page};
}

constexpr std::uint32_t k_large_files = 2048;
// A chunk's number has 32 bits. Sparse files can be larger, and an origin may report any size.
constexpr std::uint64_t k_most_size = std::uint64_t{1} << 48;
constexpr std::uint64_t k_look_at_version_ns = 100'000'000;
// A reader that continues at its last position fetches as much as FUSE and the page cache read by
// one request.
constexpr std::uint64_t k_demand_step = 128 << 10;
// How long not to try again after a chunk got no memory, and after all places were pinned by other
// processes.
constexpr std::uint64_t k_full_ns = 1'000'000'000, k_claimed_ns = 20'000'000;

constinit base::LazyPool<LargeFile, k_large_files> g_large_pool;
constinit std::atomic<std::uint32_t> g_reached{0};
constinit std::atomic<std::uint64_t> g_full_until_ns{0}, g_without_place_until_ns{0};

bool is_without_place() {
  return base::coarse_monotonic_ns() < g_without_place_until_ns.load(std::memory_order_relaxed);
}

LargeFile& file_at(std::uint32_t i) { return *g_large_pool.at(i); }

}  // namespace

// The memory to read into. It is unmapped even if a jump leaves the read.
class LargeFile::Window {
 public:
  Window() { base::Held::give_back_left(this); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    if (is_noted_ && !base::Held::let_go(this, address())) mapping_.forget();
  }
  void take(base::Mapping&& mapping) {
    mapping_ = std::move(mapping);
    is_noted_ = base::Held::note(this, unmap, address(), mapping_.size());
  }
  std::byte* data() const { return mapping_.data(); }

 private:
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(mapping_.data()); }
  static void unmap(std::uintptr_t at, std::size_t size) {
    base::Mapping::adopt(reinterpret_cast<std::byte*>(at), size).reset();
  }
  base::Mapping mapping_;
  bool is_noted_ = false;
};

struct LargeFile::Room {
  KeptClaim claim;
  Window window;
};

void LargeFile::count_use(CacheParts& parts, const Chunks::Claim& claim, const PageRun& pages) {
  if (const std::uint32_t unread = claim.take_unread(pages); unread != 0) [[unlikely]]
    parts.stats().count(Counter::block_used, unread * k_chunk_page);
}

LargeFile* LargeFile::begin(CacheParts& parts, std::string_view key, int fd) {
  if (key.size() >= PATH_MAX) return nullptr;
  // Constructed before the stat: a later writer increments its stripe's epoch, and an earlier one
  // is seen.
  ChangeWatch watch(parts.region);
  const auto found = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!found || found->size <= parts.rules.max_file) return nullptr;
  // Before the check for writers, as in RecordFill::begin_watch.
  parts.ram.note_device(found->device());
  if (!watch.watch(*found, fd)) return nullptr;
  const std::uint32_t epoch =
      writer_stripe_of(parts.region, *found).epoch.load(std::memory_order_seq_cst);
  // The version whose chunks are served.
  const auto stat = stat_fd(fd, k_ask_server);
  if (!stat || !stat->same_file(*found) || !stat->is_regular() ||
      stat->size <= parts.rules.max_file || stat->size > k_most_size)
    return nullptr;
  const std::uint64_t now = base::wall_ns();
  const bool may_change = parts.rules.consistency != base::ConsistencyKind::immutable;
  if (may_hide_change(*stat, now) || (may_change && is_within_step(stat->modified, now)))
    return nullptr;
  // An fd that cannot be read (O_WRONLY, O_PATH, invalid) must not give access to bytes that other
  // programs have read.
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
  // The kernel keeps no pages for such a file, and reads nothing ahead.
  kernel_pages_.store(is_direct ? KernelPages::none : KernelPages::unknown,
                      std::memory_order_relaxed);
  advice_.store(is_direct ? Advice::random : Advice::none, std::memory_order_relaxed);
}

bool LargeFile::reserve() { return g_large_pool.reserve(); }

std::span<const std::byte> LargeFile::memory() { return g_large_pool.memory(); }

void LargeFile::end() { refs_.fetch_sub(1, std::memory_order_release); }

bool LargeFile::is_full() {
  return base::coarse_monotonic_ns() < g_full_until_ns.load(std::memory_order_relaxed);
}

void LargeFile::forget_users() {
  Chunks::forget_claims();
  g_full_until_ns.store(0, std::memory_order_relaxed);
  g_without_place_until_ns.store(0, std::memory_order_relaxed);
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
  // Without an fd, the path is asked: a mapping outlives the fd.
  const auto now =
      fd >= 0 ? stat_fd(fd, k_ask_server) : stat_path(AT_FDCWD, named_.path, k_ask_server);
  return now && now->is_unchanged_since(stat_);
}

// Once the file was changed through the shim, no earlier open of it may be served.
bool LargeFile::is_current(CacheParts& parts, int fd) {
  if (is_over_.load(std::memory_order_relaxed)) return false;
  const std::uint32_t epoch =
      writer_stripe_of(parts.region, stat_).epoch.load(std::memory_order_seq_cst);
  const bool is_same = epoch == epoch_.load(std::memory_order_relaxed) &&
                       region_.load(std::memory_order_relaxed) == parts.region.header().created_ns;
  return is_same || look_again(parts, fd);
}

// Called if this file or another file of its stripe was written.
bool LargeFile::look_again(CacheParts& parts, int fd) {
  const std::uint32_t epoch =
      writer_stripe_of(parts.region, stat_).epoch.load(std::memory_order_seq_cst);
  std::uint64_t removals = 0;
  parts.stats().count(Counter::origin_stats);
  // The check gets no fd: with one, it would take a lease, which would replace the program's.
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
    // Another process may have placed a chunk of the file already.
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

// If a chunk was made twice, every lookup finds the same one.
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

long LargeFile::read(CacheParts& parts, int fd, FdEpoch fd_epoch, std::byte* to, std::size_t n,
                     std::uint64_t at) {
  if (!is_current(parts, fd)) return 0;
  std::size_t done = 0;
  bool has_waited = false;
  std::uint64_t fetched_at = UINT64_MAX;
  while (done < n) {
    const std::uint64_t from = at + done;
    if (const std::size_t got = copy_present(parts, to + done, n - done, from); got != 0) {
      done += got;
      continue;
    }
    // The page was fetched, but its chunk was replaced since: the kernel serves it.
    if (std::exchange(fetched_at, from) == from) break;
    has_waited = true;
    const Fetched fetched =
        fetch(parts, {.fd = fd, .is_programs = true, .fd_epoch = fd_epoch, .begin = at, .bytes = n},
              from, n - done);
    if (fetched == Fetched::here) continue;
    if (fetched == Fetched::interrupted && done == 0) return -EINTR;
    break;
  }
  parts.stats().count(has_waited ? Counter::block_misses : Counter::block_hits);
  parts.stats().count(Counter::block_read, done);
  parts.region.note_read(done);
  return static_cast<long>(done);
}

// A reader of single pages would take a place of 2 MiB from a sequential reader for each page.
Chunks::Pass LargeFile::pass_of(const By& by, std::uint64_t block) const {
  // The first read of a file, if at its start, counts as sequential.
  const bool goes_on = next_.load(std::memory_order_relaxed) == by.begin;
  return goes_on || by.bytes >= block / 4 ? Chunks::Pass::may_pass : Chunks::Pass::no;
}

// The absent pages to fetch for a read at `at`, all of one block, beginning with the first absent
// page.
PageRun LargeFile::wanted_pages(CacheParts& parts, const Chunks::Claim& claim, const By& by,
                                std::uint64_t at, std::size_t n, std::uint64_t block) {
  const std::uint64_t block_begin = at / block * block,
                      block_end = std::min(block_begin + block, stat_.size);
  std::uint64_t end = std::min(at + n, block_end);
  const bool is_random = advice_.load(std::memory_order_relaxed) == Advice::random;
  const bool goes_on = next_.load(std::memory_order_relaxed) == by.begin && at != 0 && !is_random;
  if (goes_on) end = std::min(std::max(end, at + k_demand_step), block_end);
  // The program waits only for its own pages; ahead() then fetches the rest of the block.
  const bool is_second = claim.has_any(pages_of(block_begin, block_end));
  if (is_second && !goes_on && !is_random && by.bytes < block / 4)
    wanted_block_.store(at / block + 1, std::memory_order_relaxed);
  // Threads that read a model with O_DIRECT have parts of a block each, with overlaps.
  if (is_direct() && is_of_whole_format(parts)) end = block_end;
  const PageRun pages = pages_of(at, end);
  return claim.absent_from(pages.first, pages.end);
}

LargeFile::Fetched LargeFile::fetch(CacheParts& parts, const By& by, std::uint64_t at,
                                    std::size_t n) {
  const std::uint64_t block = parts.rules.block;
  // Leaves it to the kernel if a handler has interrupted a fetch of this thread, or if the chunk
  // has no place.
  const Chunks chunks = this->chunks(parts);
  const Chunks::Pass pass = pass_of(by, block);
  const bool has_no_place = is_full() || (pass == Chunks::Pass::no && chunks.is_full());
  if (FetchScope::is_open() || (has_no_place && !find(chunks, chunk_of(at))))
    return Fetched::at_origin;
  FetchScope scope;
  SingleFlight::Ticket ticket;
  struct Page {
    const Chunks& chunks;
    const LargeFile& file;
    std::uint64_t at;
    bool is_here() const {
      return file.find(chunks, chunk_of(at)).has_all({page_of(at), page_of(at) + 1});
    }
  } const page{chunks, *this, at};
  const SingleFlight::Wanted wanted{
      [](const void* of) { return static_cast<const Page*>(of)->is_here(); }, &page};
  const auto flight = parts.flights.begin(block_hash(at, block), ticket, nullptr, true, &wanted);
  if (flight == SingleFlight::Outcome::too_long) return Fetched::at_origin;
  if (page.is_here()) return Fetched::here;
  // All slots of flights are taken, so two processes could fetch the page at the same time.
  if (ticket.hold().slot == nullptr) return Fetched::at_origin;
  scope.hold(ticket.hold());
  scope.begin_wait(parts.region.own_process());
  By now = by;
  now.scope = &scope;
  now.pass = pass;
  now.brings_block = is_whole_block({at, at + n}, block);
  Fetched fetched = Fetched::waits;
  while (fetched == Fetched::waits) {
    const std::uint32_t ended = chunks.offers_ended();
    std::uint64_t bytes = 0;
    fetched = bring_from_tier(parts, now, at, bytes);
    if (fetched == Fetched::at_origin)
      fetched = bring(parts, now, chunk_of(at),
                      wanted_pages(parts, find(chunks, chunk_of(at)), by, at, n, block));
    if (fetched == Fetched::waits) now.pass = after_wait(chunks, ended, true);
  }
  end_block(parts, now, at);
  return fetched == Fetched::here && !scope.is_own() ? Fetched::at_origin : fetched;
}

// Whether the bytes that were just read may be published as those of this version.
bool LargeFile::may_publish(CacheParts& parts, const By& by) {
  // By now the program's fd may refer to another file. The stat of that file says nothing about
  // this one.
  const auto is_its = [&] { return !by.is_programs || by.fd_epoch == fd_epoch(); };
  // A jump may have left this fetch and ended it.
  if (by.scope != nullptr && !by.scope->is_own()) return false;
  if (!is_its()) return false;
  const std::uint64_t now = base::coarse_monotonic_ns();
  if (now - looked_ns_.load(std::memory_order_relaxed) >= k_look_at_version_ns &&
      !look_again(parts, by.fd))
    return false;
  return is_current(parts, by.fd) && is_its();
}

LargeFile::Fetched LargeFile::read_pages(CacheParts& parts, const By& by, std::uint64_t at,
                                         std::byte* to, std::uint64_t bytes) {
  // A read with O_DIRECT ends where a page ends.
  const std::uint64_t beyond = is_direct() ? -bytes % k_chunk_page : 0;
  while (bytes != 0) {
    parts.stats().count(Counter::origin_reads);
    const long n = base::sys::pread(by.fd, to, bytes + beyond, static_cast<std::int64_t>(at));
    if (n == -EINTR) return Fetched::interrupted;
    // The kernel's read will report an error. A file that ends before or after its size is another
    // version.
    if (n <= 0 || static_cast<std::uint64_t>(n) > bytes) return Fetched::at_origin;
    parts.stats().count(Counter::origin_bytes, static_cast<std::uint64_t>(n));
    parts.stats().count(Counter::block_origin, static_cast<std::uint64_t>(n));
    at += static_cast<std::uint64_t>(n);
    to += n;
    bytes -= static_cast<std::uint64_t>(n);
  }
  return Fetched::here;
}

// Pins or makes a chunk, reduces `pages` to those that are absent in it, perhaps none, and maps a
// window for them. False: there is no room.
bool LargeFile::make_room(Chunks& chunks, std::uint32_t number, Chunks::Pass pass, PageRun& pages,
                          Room& room) {
  // A jump out of this would leave a half-made place or an fd of the library.
  const base::BlockSignals block;
  room.claim.take(is_full() ? find(chunks, number)
                            : chunks.make(key_, number, place_of(chunks, number), pass));
  if (!room.claim) return false;
  // This may not be the chunk that the caller found: it may have pages that the other one lacks.
  pages = room.claim->absent_from(pages.first, pages.end);
  if (pages.is_empty()) return true;
  auto window = chunks.window(*room.claim, pages);
  if (window) room.window.take(std::move(*window));
  return static_cast<bool>(window);
}

// Reads pages of one block from the origin. The caller has the block's flight.
LargeFile::Fetched LargeFile::bring(CacheParts& parts, const By& by, std::uint32_t number,
                                    PageRun pages) {
  if (pages.is_empty()) return Fetched::at_origin;
  Chunks chunks = this->chunks(parts);
  Room room;
  if (!make_room(chunks, number, by.pass, pages, room)) {
    if (!room.claim && chunks.waits_for_tiers()) return Fetched::waits;
    // Fetches that may replace passing chunks may still find a place.
    const bool is_for_all = room.claim || by.pass != Chunks::Pass::no;
    auto& until = is_for_all ? g_full_until_ns : g_without_place_until_ns;
    until.store(
        base::coarse_monotonic_ns() + (room.claim || !is_for_all ? k_full_ns : k_claimed_ns),
        std::memory_order_relaxed);
    return Fetched::at_origin;
  }
  if (pages.is_empty()) return Fetched::here;
  const auto& [claim, window] = room;
  const std::uint64_t at = byte_of(number, pages.first);
  const std::uint64_t bytes = std::min(pages.count() * k_chunk_page, stat_.size - at);
  note_read_now(chunks, *claim, pages);
  ask_kernel_for(by.fd, at, bytes);
  const Fetched fetched = read_pages(parts, by, at, window.data(), bytes);
  if (fetched != Fetched::here) return fetched;
  if (!publish(parts, by, chunks, *claim, pages, window.data(), bytes)) return Fetched::at_origin;
  note_brought(parts, chunks, *claim, at);
  return Fetched::here;
}

bool LargeFile::publish(CacheParts& parts, const By& by, Chunks& chunks, const Chunks::Claim& claim,
                        const PageRun& pages, std::byte* window, std::uint64_t bytes) {
  // An earlier fetch may have left bytes past the file's end, which a mapping would show.
  std::memset(window + bytes, 0, pages.count() * k_chunk_page - bytes);
  if (!may_publish(parts, by)) return false;
  if (!by.is_programs) {
    chunks.note_ahead(claim, pages);
    parts.stats().count(Counter::block_ahead, pages.count() * k_chunk_page);
  }
  // A writer that came since may_publish() increments its stripe's epoch before it searches for
  // chunks, so readers do not serve these pages.
  chunks.note_present(claim, pages);
  return true;
}

bool LargeFile::may_have_room() { return !is_full() && !is_without_place(); }

bool LargeFile::has_no_place(CacheParts& parts, std::uint64_t at) const {
  return !may_have_room() && !find(chunks(parts), chunk_of(at));
}

}  // namespace cube::cache
