// LargeFile: fetches bytes into the chunks before a program asks for them: ahead of a reader, or
// from a list of files.
#include <algorithm>
#include <utility>

#include "cache/base/hash.h"
#include "cache/base/process/sandbox.h"
#include "cache/base/readahead.h"
#include "cache/fill/large/large_file.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

// Readers see the bytes after each step.
constexpr std::uint64_t k_ahead_step = 256 << 10;

// This many threads of the node can hold a reader's flight of one file at the same time. After
// k_tries waits, a thread reads without such a flight.
constexpr std::uint64_t k_readers = 8;
constexpr int k_tries = 4;

// The hash of the flight of the `reader`-th thread that reads the file ahead. A flight occupies one
// of four adjacent slots, so hashes that are four apart never compete for a slot.
std::uint64_t reader_hash(std::uint64_t path_hash, std::uint64_t reader) {
  constexpr std::uint64_t k_slots_of_flight = 4;
  return base::hash_bytes(&path_hash, sizeof path_hash) + reader * k_slots_of_flight;
}

}  // namespace

SingleFlight::Ticket LargeFile::begin_reading(CacheParts& parts, std::uint64_t until_ns) const {
  SingleFlight::Ticket ticket;
  for (int i = 0; i < k_tries; ++i) {
    std::uint64_t reader = 0;
    while (reader < k_readers &&
           parts.flights.begin_prefetch(reader_hash(key_.path, reader), ticket) !=
               SingleFlight::Prefetch::mine)
      ++reader;
    if (reader == k_readers) {
      const auto thread = static_cast<std::uint64_t>(base::sys::raw(SYS_gettid));
      parts.flights.wait_for_end(reader_hash(key_.path, thread % k_readers), until_ns);
      continue;
    }
    // Pairs with await_readers(): either this thread sees the flight of the open, or the open sees
    // the flight of this thread.
    if (!parts.flights.is_under_way(key_.path)) break;
    ticket = {};
    parts.flights.wait_for_end(key_.path, until_ns);
  }
  return ticket;
}

SingleFlight::Ticket LargeFile::begin_reading_by(CacheParts& parts, int fd,
                                                 std::uint64_t until_ns) {
  return kernel_keeps_pages(fd) ? begin_reading(parts, until_ns) : SingleFlight::Ticket();
}

void LargeFile::await_readers(CacheParts& parts, std::uint64_t path_hash) {
  if (parts.region.header().has_chunks.load(std::memory_order_relaxed) == 0) return;
  for (std::uint64_t reader = 0; reader < k_readers; ++reader) {
    const std::uint64_t hash = reader_hash(path_hash, reader);
    if (parts.flights.is_under_way(hash)) parts.flights.wait_for_end(hash);
  }
}

template <typename MayGoOn>
LargeFile::Steps LargeFile::bring_in_steps(CacheParts& parts, const By& by, std::uint32_t number,
                                           PageRun pages, const SingleFlight::Ticket& ticket,
                                           std::uint64_t& bytes, const MayGoOn& may_go_on) {
  const Chunks chunks = this->chunks(parts);
  // If the kernel keeps no pages, it requests only the parts of a single read in parallel, so one
  // read must ask for everything.
  const bool is_one_read = is_direct() || (by.asks_for_block && !kernel_keeps_pages(by.fd));
  const auto step =
      is_one_read ? pages.count()
                  : static_cast<std::uint32_t>(
                        std::max<std::uint64_t>(k_ahead_step, base::kernel_page()) / k_chunk_page);
  for (bool has_asked_tiers = false;;) {
    const PageRun gap = find(chunks, number).next_absent(pages, step);
    if (gap.is_empty()) return Steps::done;
    if (!may_go_on()) return Steps::ended;
    if (!std::exchange(has_asked_tiers, true)) {
      const std::uint64_t at = byte_of(number, gap.first);
      const Fetched fetched = bring_from_tier(parts, by, at, bytes);
      if (fetched == Fetched::waits) return Steps::waits;
      if (fetched == Fetched::here) continue;
      // After a program's first read of the file, the rest is not requested, because the program
      // may close the file soon.
      const bool is_sequence = window_.load(std::memory_order_relaxed) != 0;
      if (is_sequence || by.asks_for_block)
        ask_kernel_for(by.fd, at, std::uint64_t{pages.end - gap.first} * k_chunk_page);
    }
    const Fetched fetched = bring(parts, by, number, gap);
    if (fetched != Fetched::here) return fetched == Fetched::waits ? Steps::waits : Steps::failed;
    bytes += gap.count() * k_chunk_page;
    ticket.hold().tell_progress();
    pages.first = gap.end;
  }
}

bool LargeFile::fetch_ahead(CacheParts& parts, int fd, FdsLeft fds_left, const Range& range) {
  const std::uint64_t block = parts.rules.block, begin = range.begin;
  const std::uint64_t end = std::min({(begin / block + 1) * block, range.end, stat_.size});
  if (begin >= end || is_over_.load(std::memory_order_relaxed)) return false;
  if (is_full() && !find(chunks(parts), chunk_of(begin))) return false;
  // When the program closes the file, this fetch must not prolong a lock of the program or keep the
  // mount busy.
  const auto is_wanted = [&] { return fds_left == this->fds_left(); };
  const Chunks chunks = this->chunks(parts);
  By by{.fd = fd, .pass = range.passes ? Chunks::Pass::may_pass : Chunks::Pass::no};
  by.brings_block = is_whole_block({begin, end}, block);
  for (;;) {
    const std::uint32_t ended = chunks.offers_ended();
    Steps steps = Steps::done;
    {
      const SingleFlight::Ticket reading = begin_reading_by(parts, fd);
      SingleFlight::Ticket ticket;
      if (parts.flights.begin_prefetch(block_hash(begin, block), ticket) !=
          SingleFlight::Prefetch::mine)
        return true;
      if (ticket.hold().slot == nullptr) return true;
      std::uint64_t bytes = 0;
      steps = bring_in_steps(parts, by, chunk_of(begin), pages_of(begin, end), ticket, bytes,
                             is_wanted);
      end_block(parts, by, begin);
    }
    // The flight of the block has ended here, so a program that needs the block can get it during
    // the wait.
    if (steps != Steps::waits) return steps == Steps::done;
    by.pass = after_wait(chunks, ended, false);
  }
}

void LargeFile::ask_kernel_for(int fd, std::uint64_t at, std::uint64_t bytes) {
  // On a block device (whose major number is not 0), the kernel's own readahead is enough.
  if (bytes <= base::k_one_readahead || stat_.device_major != 0) return;
  if (kernel_keeps_pages(fd)) base::ask_for_pages(fd, at, std::min(bytes, stat_.size - at));
}

bool LargeFile::kernel_keeps_pages(int fd) {
  KernelPages pages = kernel_pages_.load(std::memory_order_relaxed);
  if (pages == KernelPages::unknown) {
    pages =
        !base::may_be_sandboxed() && base::keeps_pages(fd) ? KernelPages::kept : KernelPages::none;
    kernel_pages_.store(pages, std::memory_order_relaxed);
  }
  return pages == KernelPages::kept;
}

LargeFile::Stretch LargeFile::bring_ahead(CacheParts& parts, int fd, Range& range,
                                          const std::atomic<bool>& is_stopping,
                                          bool asks_for_block) {
  const std::uint64_t block = parts.rules.block, begin = range.begin;
  const std::uint64_t end =
      std::min({(begin / block + 1) * block, (begin / k_chunk_bytes + 1) * k_chunk_bytes, range.end,
                stat_.size});
  range.begin = std::max(end, begin);
  if (begin >= end || is_over()) return {};
  const Chunks chunks = this->chunks(parts);
  const PageRun all = pages_of(begin, end);
  const auto is_present = [&] { return find(chunks, chunk_of(begin)).has_all(all); };
  if (is_present()) return {Brought::here, 0};
  if (has_no_place(parts, begin)) return {Brought::no_room, 0};
  const SingleFlight::Ticket reading = begin_reading_by(parts, fd);
  SingleFlight::Ticket ticket;
  if (parts.flights.begin_prefetch(block_hash(begin, block), ticket) !=
      SingleFlight::Prefetch::mine) {
    // A program has the flight, but may fetch only the pages of its own read. So this thread waits
    // until the flight ends, and then fetches the rest.
    if (parts.flights.begin(block_hash(begin, block), ticket) == SingleFlight::Outcome::too_long)
      return {};
  }
  if (ticket.hold().slot == nullptr) return {is_present() ? Brought::here : Brought::not_here, 0};
  Stretch stretch{Brought::here, 0};
  const auto may_go_on = [&] { return !is_stopping.load(std::memory_order_acquire); };
  By by{.fd = fd};
  by.brings_block = is_whole_block({begin, end}, block);
  by.asks_for_block = asks_for_block;
  const Steps steps =
      bring_in_steps(parts, by, chunk_of(begin), all, ticket, stretch.bytes, may_go_on);
  end_block(parts, by, begin);
  if (steps == Steps::ended) stretch.what = Brought::not_here;
  if (steps == Steps::failed)
    stretch.what = has_no_place(parts, begin) ? Brought::no_room : Brought::not_here;
  return stretch;
}

std::uint64_t LargeFile::present_bytes(CacheParts& parts, std::string_view path,
                                       const FileStat& stat, const Range& range) {
  const Chunks chunks(parts.region);
  const FileKey key = key_of_file(path, stat);
  const std::uint64_t end = std::min(range.end, stat.size);
  std::uint64_t bytes = 0;
  for (std::uint64_t at = range.begin; at < end;) {
    const std::uint64_t chunk_begin = at / k_chunk_bytes * k_chunk_bytes,
                        chunk_end = std::min(end, chunk_begin + k_chunk_bytes);
    const auto claim = chunks.find(key, chunk_of(at));
    for (std::uint32_t page = page_of(at), last = pages_of(at, chunk_end).end;
         claim && page < last;) {
      const PageRun run = claim.next_present(page, last);
      const std::uint64_t from = std::max(at, chunk_begin + run.first * k_chunk_page);
      const std::uint64_t to = std::min(chunk_end, chunk_begin + run.end * k_chunk_page);
      if (from < to) bytes += to - from;
      page = run.end;
    }
    at = chunk_end;
  }
  return bytes;
}

void LargeFile::forget(CacheParts& parts, std::string_view path, const FileStat& stat,
                       const Range& range) {
  Chunks chunks(parts.region);
  const FileKey key = key_of_file(path, stat);
  for (std::uint64_t at = range.begin / k_chunk_bytes * k_chunk_bytes;
       at < std::min(range.end, stat.size); at += k_chunk_bytes)
    chunks.forget(key, chunk_of(at));
}

std::uint64_t LargeFile::present_bytes(CacheParts& parts, const Range& range) const {
  return present_bytes(parts, named_.path, stat_, range);
}

}  // namespace cube::cache
