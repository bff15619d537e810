// LargeFile: finds the present pages that a mapping of the program can show, and copies pages that
// the kernel has read for a mapping to the chunks.
#include <algorithm>
#include <array>
#include <cerrno>

#include "cache/base/process/high_fd.h"
#include "cache/fill/large/large_file.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_asked_at_once = 16 << 20;
constexpr std::uint64_t k_kept_at_once = 1 << 20;

// Faults in pages of a mapping. False: some pages cannot be read. Linux before 5.14 does not know
// this advice; there, the pages are read when they are copied.
bool read_in(const std::byte* from, std::uint64_t bytes) {
  constexpr int k_madv_populate_read = 22;
  const long error = base::sys::madvise(const_cast<std::byte*>(from), bytes, k_madv_populate_read);
  return !base::sys::failed(error) || error == -EINVAL;
}

}  // namespace

std::size_t LargeFile::pieces(CacheParts& parts, Range& range, std::span<Piece> pieces) const {
  const Chunks chunks = this->chunks(parts);
  std::size_t count = 0;
  while (!range.is_empty()) {
    const std::uint64_t at = range.begin;
    const std::uint64_t chunk_begin = at / k_chunk_bytes * k_chunk_bytes;
    const std::uint64_t end = std::min(range.end, chunk_begin + k_chunk_bytes);
    auto claim = find(chunks, chunk_of(at));
    // Passing chunks are not mapped: a mapped chunk is never replaced, and passing chunks have only
    // a small part of the region.
    if (claim && claim.is_passing()) claim.release();
    if (claim) claim.note_mapped();
    for (std::uint32_t page = page_of(at), last = pages_of(at, end).end; claim && page < last;) {
      const PageRun run = claim.next_present(page, last);
      page = run.end;
      if (run.is_empty()) break;
      count_use(parts, claim, run);
      const Piece piece{chunk_begin + run.first * k_chunk_page, run.count() * k_chunk_page,
                        claim.offset(parts.region) + run.first * k_chunk_page};
      Piece* const before = count != 0 ? &pieces[count - 1] : nullptr;
      const bool goes_on = before != nullptr && before->at + before->bytes == piece.at &&
                           before->in_region + before->bytes == piece.in_region;
      if (goes_on) {
        before->bytes += piece.bytes;
      } else {
        if (count == pieces.size()) {
          range.begin = piece.at;
          return count;
        }
        pieces[count++] = piece;
      }
    }
    range.begin = end;
  }
  return count;
}

void LargeFile::note_shown(CacheParts& parts, const Range& range) const {
  const Chunks chunks = this->chunks(parts);
  const auto job =
      static_cast<std::uint32_t>(parts.region.job_row(parts.region.own_job()).last_used);
  std::uint64_t pages = 0;
  for (std::uint64_t at = range.begin, end = 0; at < range.end; at = end) {
    end = std::min(range.end, (at / k_chunk_bytes + 1) * k_chunk_bytes);
    if (const auto claim = find(chunks, chunk_of(at)); claim)
      pages += claim.note_shown(pages_of(at, end), job);
  }
  if (pages != 0) parts.stats().count(base::Counter::block_mapped, pages * k_chunk_page);
}

OriginFd LargeFile::reopen() const {
  // With these flags, the open does no harm even if the path now names a FIFO or a terminal.
  constexpr int k_flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  // Moves the fd to a high number, because it can stay open for long, and the program's next open
  // must get the lowest free fd.
  OriginFd high = base::raise_fd(OriginFd(static_cast<int>(base::sys::open(named_.path, k_flags))));
  return high && is_version_of(high.get()) ? std::move(high) : OriginFd();
}

bool LargeFile::tells_pages() const {
  const long self = base::sys::raw(SYS_geteuid);
  if (self == 0 || self == stat_.user) return true;
  return !base::sys::failed(
      base::sys::raw(SYS_faccessat, AT_FDCWD, base::sys::arg(named_.path), W_OK));
}

// Copies pages of one block to a chunk. Empty result: the caller should stop.
std::optional<std::uint64_t> LargeFile::keep_run(CacheParts& parts, const std::byte* from,
                                                 std::uint64_t at, std::uint64_t end, int region_fd,
                                                 bool reads) {
  Chunks chunks = this->chunks(parts);
  const std::uint32_t number = chunk_of(at);
  PageRun pages = find(chunks, number).next_absent(pages_of(at, end));
  if (pages.is_empty()) return 0;
  SingleFlight::Ticket ticket;
  const std::uint64_t hash = block_hash(at, parts.rules.block);
  if (parts.flights.begin_prefetch(hash, ticket) != SingleFlight::Prefetch::mine) {
    // Another thread or process is fetching the block. Waits only for the first block of the file,
    // because its bytes show the format.
    if (!reads || at != 0) return 0;
    if (parts.flights.begin(hash, ticket) == SingleFlight::Outcome::too_long) return 0;
  }
  if (ticket.hold().slot == nullptr) return 0;
  const auto claim = chunks.make(key_, number, place_of(chunks, number));
  if (!claim) return {};
  // Another process may have fetched some of the pages before this process got the flight.
  pages = claim.next_absent(pages);
  if (pages.is_empty()) return 0;
  note_read_now(chunks, claim, pages);
  const std::uint64_t first = byte_of(number, pages.first);
  const std::byte* const begin = from + (first - at);
  if (reads && (!read_in(begin, pages.count() * k_chunk_page) || is_locked())) return 0;
  if (!chunks.copy_in(region_fd, claim, pages, begin)) return {};
  if (!may_publish(parts, {})) return {};
  chunks.note_present(claim, pages);
  note_brought(parts, chunks, claim, first);
  parts.stats().count(base::Counter::block_kept, pages.count() * k_chunk_page);
  return pages.count() * k_chunk_page;
}

std::optional<std::uint64_t> LargeFile::keep_pages(CacheParts& parts, const base::Mapping& mapping,
                                                   std::uint64_t begin, int region_fd) {
  std::array<unsigned char, k_asked_at_once / k_chunk_page> in_memory;
  const std::uint64_t block = std::min<std::uint64_t>(parts.rules.block, k_kept_at_once);
  std::uint64_t kept = 0;
  for (std::uint64_t done = 0; done < mapping.size(); done += k_asked_at_once) {
    // A mapping of the library must not prolong a lock of the program.
    if (is_locked()) return {};
    const std::uint64_t bytes = std::min<std::uint64_t>(k_asked_at_once, mapping.size() - done);
    if (base::sys::failed(base::sys::raw(SYS_mincore, base::sys::arg(mapping.data() + done),
                                         static_cast<long>(bytes),
                                         base::sys::arg(in_memory.data()))))
      return {};
    const std::uint64_t page_count = bytes / k_chunk_page;
    for (std::uint64_t page = 0; page < page_count;) {
      if ((in_memory[page] & 1) == 0) {
        ++page;
        continue;
      }
      const std::uint64_t at = begin + done + page * k_chunk_page;
      const std::uint64_t block_end = (at / block + 1) * block;
      std::uint64_t end = at;
      for (; page < page_count && end < block_end && (in_memory[page] & 1) != 0; ++page)
        end += k_chunk_page;
      if (at >= stat_.size) break;
      // A mapping of the library must not prolong a lock of the program.
      if (is_locked()) return {};
      const auto run =
          keep_run(parts, mapping.data() + (at - begin), at, std::min(end, stat_.size), region_fd,
                   /*reads=*/false);
      if (!run) return {};
      kept += *run;
    }
  }
  return kept;
}

}  // namespace cube::cache
