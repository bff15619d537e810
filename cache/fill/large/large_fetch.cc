// LargeFile: fetches the absent pages that a program waits for, and decides whether pages may be
// published after they were read.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/memory/held.h"
#include "cache/base/process/block_signals.h"
#include "cache/fill/kept_claim.h"
#include "cache/fill/large/large_file.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

using base::Counter;

// A stat is valid for k_look_at_version_ns. One thread renews the stat early, so that the other
// threads do not all wait for a new stat at the same time.
constexpr std::uint64_t k_look_at_version_ns = 100'000'000, k_renew_ns = 75'000'000;
// The least that a reader fetches if it continues at its last position. FUSE and the page cache
// read this much with one request.
constexpr std::uint64_t k_demand_step = 128 << 10;
// After a failed search for room, no search is made for this long. k_full_ns: there was no memory,
// or no free place for a read that may not replace passing chunks. k_claimed_ns: no passing chunk
// could be replaced, perhaps because all were pinned.
constexpr std::uint64_t k_full_ns = 1'000'000'000, k_claimed_ns = 20'000'000;

constinit std::atomic<std::uint64_t> g_full_until_ns{0}, g_without_place_until_ns{0};

bool is_without_place() {
  return base::coarse_monotonic_ns() < g_without_place_until_ns.load(std::memory_order_relaxed);
}

}  // namespace

// The memory into which pages are read. Even if a jump leaves the read, the memory is unmapped.
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

// Decides whether a read may replace passing chunks. A reader of single pages may not: for each
// page, it would take a place of 2 MiB away from a sequential reader.
Chunks::Pass LargeFile::pass_of(const By& by, std::uint64_t block) const {
  // The first read of a file continues the sequence if it begins at offset 0.
  const bool goes_on = next_.load(std::memory_order_relaxed) == by.begin;
  return goes_on || by.bytes >= block / 4 ? Chunks::Pass::may_pass : Chunks::Pass::no;
}

// The run of absent pages to fetch for a read at offset `at`. All of them lie in one block.
PageRun LargeFile::wanted_pages(CacheParts& parts, const Chunks::Claim& claim, const By& by,
                                std::uint64_t at, std::size_t n, std::uint64_t block) {
  const std::uint64_t block_begin = at / block * block,
                      block_end = std::min(block_begin + block, stat_.size);
  std::uint64_t end = std::min(at + n, block_end);
  const bool is_random = is_read_at_random();
  const bool goes_on = next_.load(std::memory_order_relaxed) == by.begin && at != 0 && !is_random;
  if (goes_on) end = std::min(std::max(end, at + k_demand_step), block_end);
  // The program waits only for its own pages. After a second read of the block, ahead() returns the
  // rest of the block.
  const bool is_second = claim.has_any(pages_of(block_begin, block_end));
  if (is_second && !goes_on && !is_random && by.bytes < block / 4)
    wanted_block_.store(at / block + 1, std::memory_order_relaxed);
  // Several threads may read a model with O_DIRECT, each a part of the same block. So the first
  // read fetches the rest of the block.
  if (is_direct() && !by.is_to_map && is_of_whole_format(parts)) end = block_end;
  const PageRun pages = pages_of(at, end);
  return claim.absent_from(pages.first, pages.end);
}

LargeFile::Fetched LargeFile::fetch(CacheParts& parts, const By& by, std::uint64_t at,
                                    std::size_t n) {
  const std::uint64_t block = parts.rules.block;
  const Chunks chunks = this->chunks(parts);
  // Passing chunks cannot be mapped.
  const Chunks::Pass pass = by.is_to_map ? Chunks::Pass::no : pass_of(by, block);
  const bool has_no_place = is_full() || (pass == Chunks::Pass::no && chunks.is_full());
  // A signal handler that has interrupted a fetch of this thread fetches nothing.
  if (FetchScope::is_open() || (has_no_place && !find(chunks, chunk_of(at))))
    return Fetched::at_origin;
  FetchScope scope;
  scope.hold({}, by.reading);
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
  // Without a slot, the flight does not exclude other processes, and two of them could fetch the
  // page at the same time.
  if (ticket.hold().slot == nullptr) return Fetched::at_origin;
  scope.hold(ticket.hold(), by.reading);
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

// Reads pages of one block from the origin. The caller must have the block's flight.
LargeFile::Fetched LargeFile::bring(CacheParts& parts, const By& by, std::uint32_t number,
                                    PageRun pages) {
  if (pages.is_empty()) return Fetched::at_origin;
  Chunks chunks = this->chunks(parts);
  Room room;
  if (!make_room(chunks, number, by.pass, pages, room)) {
    if (!room.claim && chunks.waits_for_tiers()) return Fetched::waits;
    // This fetch may not have been allowed to replace passing chunks. Other fetches may then still
    // find a place.
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

// Pins or creates a chunk, reduces `pages` to a run of pages that the chunk lacks (possibly none),
// and maps a window for this run. False: there is no room.
bool LargeFile::make_room(Chunks& chunks, std::uint32_t number, Chunks::Pass pass, PageRun& pages,
                          Room& room) {
  // A jump out of this function would leave behind a half-made place or an open fd of the library.
  const base::BlockSignals block;
  room.claim.take(is_full() ? find(chunks, number)
                            : chunks.make(key_, number, place_of(chunks, number), pass));
  if (!room.claim) return false;
  // This may be another chunk than the caller has found, with other present pages.
  pages = room.claim->absent_from(pages.first, pages.end);
  if (pages.is_empty()) return true;
  auto window = chunks.window(*room.claim, pages);
  if (window) room.window.take(std::move(*window));
  return static_cast<bool>(window);
}

LargeFile::Fetched LargeFile::read_pages(CacheParts& parts, const By& by, std::uint64_t at,
                                         std::byte* to, std::uint64_t bytes) {
  // A read with O_DIRECT must end at a page boundary.
  const std::uint64_t beyond = is_direct() ? -bytes % k_chunk_page : 0;
  while (bytes != 0) {
    parts.stats().count(Counter::origin_reads);
    const long n = base::sys::pread(by.fd, to, bytes + beyond, static_cast<std::int64_t>(at));
    if (n == -EINTR) return Fetched::interrupted;
    // Errors are not reported here: the kernel will report them when it answers the program's read.
    // A file that is shorter or longer than its known size is another version.
    if (n <= 0 || static_cast<std::uint64_t>(n) > bytes) return Fetched::at_origin;
    parts.stats().count(Counter::origin_bytes, static_cast<std::uint64_t>(n));
    parts.stats().count(Counter::block_origin, static_cast<std::uint64_t>(n));
    at += static_cast<std::uint64_t>(n);
    to += n;
    bytes -= static_cast<std::uint64_t>(n);
  }
  return Fetched::here;
}

bool LargeFile::publish(CacheParts& parts, const By& by, Chunks& chunks, const Chunks::Claim& claim,
                        const PageRun& pages, std::byte* window, std::uint64_t bytes) {
  // An earlier fetch may have left bytes past the file's end, which a mapping would show.
  std::memset(window + bytes, 0, pages.count() * k_chunk_page - bytes);
  if (!may_publish(parts, by)) return false;
  if (by.of_program == nullptr) {
    chunks.note_ahead(claim, pages);
    parts.stats().count(Counter::block_ahead, pages.count() * k_chunk_page);
  }
  // A writer that starts after may_publish() increments the epoch of the file's stripe. A reader
  // that sees the new epoch checks the file again, and does not serve these pages if the file may
  // have been written.
  chunks.note_present(claim, pages);
  return true;
}

// Whether the bytes that were just read may be published as bytes of this version.
bool LargeFile::may_publish(CacheParts& parts, const By& by) {
  // The program's fd may refer to another file by now. A stat through it would then prove nothing
  // about this file.
  const auto is_its = [&] { return by.of_program == nullptr || by.of_program->goes_on(); };
  // A signal handler may have jumped out of this fetch and so have ended it.
  if (by.scope != nullptr && !by.scope->is_own()) return false;
  if (!is_its()) return false;
  const std::uint64_t age =
      base::coarse_monotonic_ns() - looked_ns_.load(std::memory_order_relaxed);
  // If a jump has left a renewal unfinished, no thread renews the stat early any more.
  const bool renews = age >= k_renew_ns && age < k_look_at_version_ns &&
                      !is_renewing_.exchange(true, std::memory_order_relaxed);
  const bool is_due = renews || age >= k_look_at_version_ns;
  const bool is_same = !is_due || look_again(parts, by.fd);
  if (renews) is_renewing_.store(false, std::memory_order_relaxed);
  if (!is_same) return false;
  return is_current(parts, by.fd) && is_its();
}

bool LargeFile::is_full() {
  return base::coarse_monotonic_ns() < g_full_until_ns.load(std::memory_order_relaxed);
}

bool LargeFile::may_have_room() { return !is_full() && !is_without_place(); }

bool LargeFile::has_no_place(CacheParts& parts, std::uint64_t at) const {
  return !may_have_room() && !find(chunks(parts), chunk_of(at));
}

void LargeFile::forget_full() {
  g_full_until_ns.store(0, std::memory_order_relaxed);
  g_without_place_until_ns.store(0, std::memory_order_relaxed);
}

}  // namespace cube::cache
