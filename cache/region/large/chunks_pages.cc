// The pages of chunks (chunks.h): their memory, and the marks of pages that are present or were
// fetched ahead.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <optional>

#include "cache/base/file_io.h"
#include "cache/base/process/went_out.h"
#include "cache/region/large/chunks.h"
#include "cache/region/life/room_for_others.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

// Calls act(word, bits) for each word of a bitmap that covers some of these pages. `word` is the
// index of the word, and `bits` are the bits of these pages in it.
template <typename Act>
void for_each_word(const PageRun& pages, Act act) {
  for (std::uint32_t page = pages.first; page < pages.end;) {
    const std::uint32_t end = std::min(pages.end, (page / 64 + 1) * 64), n = end - page;
    act(page / 64, (n == 64 ? ~0ULL : (1ULL << n) - 1) << (page % 64));
    page = end;
  }
}

using Bits = std::atomic<std::uint64_t>[ChunkRow::k_pages / 64];

void set(Bits& of, const PageRun& pages) {
  for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits) {
    of[word].fetch_or(bits, std::memory_order_relaxed);
  });
}

bool has_any(const Bits& of, const PageRun& pages) {
  bool is_any = false;
  for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits) {
    is_any = is_any || (of[word].load(std::memory_order_relaxed) & bits) != 0;
  });
  return is_any;
}

// The available memory is checked only once for each 32 MiB, because a check reads four files of
// /proc and /sys.
constexpr std::int64_t k_bytes_a_look = 32 << 20;
constinit std::atomic<std::int64_t> g_looked_for{0};

bool has_memory_for(Region& region, std::uint64_t bytes) {
  if (g_looked_for.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed) >=
      static_cast<std::int64_t>(bytes))
    return true;
  if (!region.has_memory_for(k_bytes_a_look)) return region.has_memory_for(bytes);
  g_looked_for.store(k_bytes_a_look, std::memory_order_relaxed);
  return true;
}

constexpr int k_madv_populate_write = 23, k_no_advice = 0x5a5a5a;

// Reserves memory for the whole window by madvise. Uses no fd, because the program could replace
// the fd by dup2. Empty: the kernel does not know the advice (Linux before 5.14), or a sandbox
// refuses it.
std::optional<base::Result<void>> populate(const base::Mapping& window) {
  // An emulator may report success for an advice that it does not know. To find out, populate()
  // first tries an advice that does not exist.
  static constinit std::atomic<int> cannot_ask{-1};
  if (cannot_ask.load(std::memory_order_relaxed) < 0) {
    const bool follows_any =
        !base::sys::failed(base::sys::madvise(window.data(), Chunks::k_page_bytes, k_no_advice));
    cannot_ask.store(follows_any ? 1 : 0, std::memory_order_relaxed);
  }
  if (cannot_ask.load(std::memory_order_relaxed) != 0) return {};
  const long error = base::sys::madvise(window.data(), window.size(), k_madv_populate_write);
  if (!base::sys::failed(error)) return base::Result<void>();
  // EFAULT: the file system is full, so a store would raise SIGBUS.
  if (error == -EFAULT || error == -ENOMEM) return base::Result<void>(base::fail(ENOMEM));
  return {};
}

}  // namespace

base::Result<base::Mapping> Chunks::window(const Claim& claim, const PageRun& pages) {
  const std::uint64_t at =
      std::uint64_t{claim.place()} * k_chunk_bytes + pages.first * k_page_bytes;
  const std::uint64_t bytes = pages.count() * k_page_bytes;
  keep_room_for_others(*region_);
  if (!has_memory_for(*region_, bytes)) return base::fail(ENOMEM);
  auto window = region_->window(at, bytes);
  if (!window) return window;
  const auto populated = populate(*window);
  if (populated && !*populated) return base::fail(populated->error().value);
  if (populated) return window;
  if (const auto reserved = region_->reserve_data(at, bytes); !reserved)
    return base::fail(reserved.error().value);
  return window;
}

base::Result<void> Chunks::copy_in(int region_fd, const Claim& claim, const PageRun& pages,
                                   const std::byte* from) {
  const std::uint64_t bytes = pages.count() * k_page_bytes;
  if (!has_memory_for(*region_, bytes)) return base::fail(ENOMEM);
  return base::write_at(region_fd, from, bytes,
                        claim.offset(*region_) + pages.first * k_page_bytes);
}

void Chunks::note_ahead(const Claim& claim, const PageRun& pages) const {
  // Increments the count before the bits are set. Otherwise a reader that clears a bit could
  // decrement the count below zero.
  claim.row_->unread.fetch_add(pages.count(), std::memory_order_relaxed);
  for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits) {
    claim.row_->ahead[word].fetch_or(bits, std::memory_order_relaxed);
  });
}

std::uint32_t Chunks::Claim::note_shown(const PageRun& pages, std::uint32_t job) const {
  if (row_->shown_to.exchange(job, std::memory_order_relaxed) != job) {
    for (auto& bits : row_->shown) bits.store(0, std::memory_order_relaxed);
  }
  std::uint32_t first = 0;
  for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits) {
    const std::uint64_t before = row_->shown[word].fetch_or(bits, std::memory_order_relaxed);
    first += static_cast<std::uint32_t>(std::popcount(bits & ~before));
  });
  return first;
}

std::uint32_t Chunks::Claim::note_mapper(std::uint32_t process) const {
  std::uint32_t before = row_->mapped.load(std::memory_order_relaxed);
  while (!row_->mapped.compare_exchange_weak(before, (before & ChunkRow::k_is_mapped) | process,
                                             std::memory_order_relaxed)) {
  }
  return before & ~ChunkRow::k_is_mapped;
}

std::uint32_t Chunks::Claim::take_unread_slow(const PageRun& pages) const {
  std::uint32_t taken = 0;
  for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits) {
    if ((row_->ahead[word].load(std::memory_order_relaxed) & bits) == 0) return;
    const std::uint64_t before = row_->ahead[word].fetch_and(~bits, std::memory_order_relaxed);
    taken += static_cast<std::uint32_t>(std::popcount(before & bits));
  });
  if (taken != 0) row_->unread.fetch_sub(taken, std::memory_order_relaxed);
  return taken;
}

void Chunks::note_present(const Claim& claim, const PageRun& pages) const {
  // Increases the totals before it marks the pages, because write() subtracts the marked pages from
  // the totals. If this process dies in between, the totals are too high. In the other order, they
  // could become negative.
  const std::uint64_t bytes = pages.count() * k_page_bytes;
  region_->segment_row(segment_of(claim.place()))
      .used_bytes.fetch_add(bytes, std::memory_order_relaxed);
  region_->header().used_bytes.fetch_add(bytes, std::memory_order_relaxed);
  for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits) {
    // Release: the bytes are written. Pairs with the acquire in end_of_run.
    claim.row_->present[word].fetch_or(bits, std::memory_order_release);
  });
}

void Chunks::note_whole(const Claim& claim, bool has_disk) const {
  // Release: the pages are written. Pairs with the acquire in chunk_at.
  if (!has_disk) claim.row_->to_offer.fetch_add(1, std::memory_order_release);
  claim.row_->wholes.fetch_add(1, std::memory_order_release);
  region_->header().blocks_whole.fetch_add(1, std::memory_order_release);
}

std::uint32_t Chunks::wholes(std::uint32_t place) const {
  return region_->chunk_row(place).wholes.load(std::memory_order_acquire);
}

void Chunks::note_shared(const Claim& claim, const PageRun& pages) const {
  set(claim.row_->shared, pages);
}

bool Chunks::is_shared(const Claim& claim, const PageRun& pages) const {
  return has_any(claim.row_->shared, pages);
}

void Chunks::note_offered(const Claim& claim, const PageRun& pages) const {
  set(claim.row_->offered, pages);
}

bool Chunks::is_offered(const Claim& claim, const PageRun& pages) const {
  return has_any(claim.row_->offered, pages);
}

bool Chunks::has_offer(std::uint32_t place) const {
  const ChunkRow& row = region_->chunk_row(place);
  return row.to_offer.load(std::memory_order_relaxed) != 0 &&
         word_of(row).state == SegmentState::sealed;
}

std::optional<Chunks::Offer> Chunks::offer_at(std::uint32_t place) const {
  return has_offer(place) ? chunk_at(place) : std::nullopt;
}

std::optional<Chunks::Offer> Chunks::chunk_at(std::uint32_t place) const {
  const ChunkRow& row = region_->chunk_row(place);
  Offer offer{.claim = claim(place), .key = {}, .number = 0, .whole = 0};
  // Checks the state under the pin. A chunk that is still sealed now is not replaced until the pin
  // ends (see claim_if).
  if (word_of(row, std::memory_order_seq_cst).state != SegmentState::sealed) return {};
  offer.whole = row.to_offer.load(std::memory_order_acquire);
  offer.key = {row.path.load(std::memory_order_relaxed),
               {row.version[0].load(std::memory_order_relaxed),
                row.version[1].load(std::memory_order_relaxed)}};
  offer.number = row.number.load(std::memory_order_relaxed);
  return offer;
}

void Chunks::end_offer(const Offer& offer) const {
  // The swap fails if another block has become whole in the meantime.
  std::uint32_t whole = offer.whole;
  offer.claim.row_->to_offer.compare_exchange_strong(whole, 0, std::memory_order_relaxed);
  tell_waiting();
}

void Chunks::tell_waiting() const {
  RegionHeader& header = region_->header();
  // seq_cst: either this load sees the waiter, or the waiter sees the new count and does not sleep.
  header.chunks_written.fetch_add(1, std::memory_order_seq_cst);
  if (header.chunks_waiting.load(std::memory_order_seq_cst) != 0)
    base::sys::futex_wake_all(&header.chunks_written);
}

void Chunks::wait_for_tiers(std::uint32_t ended, std::uint64_t at_most_ns) const {
  RegionHeader& header = region_->header();
  tell_tier_writer(header);
  // If this process is killed while it waits, the count stays too high, which only causes needless
  // wake-up calls.
  header.chunks_waiting.fetch_add(1, std::memory_order_seq_cst);
  base::note_way_out();
  base::sys::futex_wait(&header.chunks_written, ended, at_most_ns);
  header.chunks_waiting.fetch_sub(1, std::memory_order_relaxed);
}

ChunkFigures figures_of_chunks(const Region& region) {
  ChunkFigures sum;
  if (region.header().has_chunks.load(std::memory_order_relaxed) == 0) return sum;
  const std::uint32_t each = region.layout().chunks_of_segment();
  for (std::uint32_t segment = 0; segment < region.layout().segment_count; ++segment) {
    const SegmentRow& row = region.segment_row(segment);
    if (word_of(row).state != SegmentState::chunks) continue;
    sum.bytes += row.used_bytes.load(std::memory_order_relaxed);
    for (std::uint32_t place = segment * each; place < (segment + 1) * each; ++place)
      sum.unread +=
          region.chunk_row(place).unread.load(std::memory_order_relaxed) * Chunks::k_page_bytes;
  }
  return sum;
}

}  // namespace cube::cache
