// The places of chunks: chooses a place for a new chunk, and frees places.
#include <bit>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/sys.h"
#include "cache/region/large/chunks.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

// After a search found no place, no process searches again for this time.
constexpr std::uint64_t k_full_ns = 1'000'000'000;

// How many files without chunks of an earlier version the process remembers. Without this memory,
// each new chunk would cost a search of the whole region.
constexpr std::size_t k_known = 64;
constinit std::atomic<std::uint64_t> g_without_former[k_known]{};

std::uint64_t known_word(const Region& region, const FileKey& key) {
  const std::uint64_t words[3] = {key.version[0], region.header().created_ns,
                                  base::coarse_monotonic_ns() / k_full_ns};
  return base::hash_bytes(words, sizeof words);
}
bool may_have_former(const Region& region, const FileKey& key) {
  return g_without_former[key.path % k_known].load(std::memory_order_relaxed) !=
         known_word(region, key);
}
void note_without_former(const Region& region, const FileKey& key) {
  g_without_former[key.path % k_known].store(known_word(region, key), std::memory_order_relaxed);
}

// Clears the bits, and returns how many were set.
template <std::size_t N>
std::uint64_t clear(std::atomic<std::uint64_t> (&words)[N]) {
  std::uint64_t count = 0;
  for (auto& bits : words)
    count += static_cast<std::uint64_t>(std::popcount(bits.exchange(0, std::memory_order_relaxed)));
  return count;
}

}  // namespace

// Drops the marks of unread pages, because these pages will never be read.
void Chunks::drop_unread(ChunkRow& row) const {
  const std::uint64_t pages = clear(row.ahead);
  row.unread.store(0, std::memory_order_relaxed);
  if (pages != 0)
    region_->own_process().stats.count(base::Counter::block_wasted, pages * k_page_bytes);
}

// Writes the identity of a new chunk into the place's row. The caller must have opened the row,
// which stays open.
void Chunks::write(std::uint32_t place, const FileKey& key, std::uint32_t number,
                   bool passes) const {
  ChunkRow& row = region_->chunk_row(place);
  drop_unread(row);
  const std::uint64_t pages = clear(row.present);
  for (auto& bits : row.offered) bits.store(0, std::memory_order_relaxed);
  for (auto& bits : row.shared) bits.store(0, std::memory_order_relaxed);
  for (auto& bits : row.shown) bits.store(0, std::memory_order_relaxed);
  row.to_offer.store(0, std::memory_order_relaxed);
  row.mapped.fetch_and(ChunkRow::k_is_mapped, std::memory_order_relaxed);
  region_->segment_row(segment_of(place))
      .used_bytes.fetch_sub(pages * k_page_bytes, std::memory_order_relaxed);
  region_->header().used_bytes.fetch_sub(pages * k_page_bytes, std::memory_order_relaxed);
  row.passed.store(
      passes ? region_->header().passing_order.fetch_add(1, std::memory_order_relaxed) + 1 : 0,
      std::memory_order_relaxed);
  row.path.store(key.path, std::memory_order_relaxed);
  for (int i = 0; i < 2; ++i) row.version[i].store(key.version[i], std::memory_order_relaxed);
  row.number.store(number, std::memory_order_relaxed);
}

bool Chunks::take_place(std::uint32_t place, const FileKey& key, std::uint32_t number) {
  const std::uint32_t segment = segment_of(place);
  if (segment >= resident_segments(*region_)) return false;
  const SegmentRow& of = region_->segment_row(segment);
  if (word_of(of).state == SegmentState::free)
    static_cast<void>(take_for_chunks(*region_, segment));
  if (word_of(of).state != SegmentState::chunks) return false;
  ChunkRow& row = region_->chunk_row(place);
  const SegmentWord before = word_of(row);
  if (before.state != SegmentState::free) return false;
  const SegmentWord open{SegmentState::open, region_->own_slot(), before.generation + 1};
  if (!swap_word(row, before, open)) return false;
  // In the meantime, free_kept_segments() may have given the segment to records.
  if (word_of(of, std::memory_order_seq_cst).state != SegmentState::chunks) {
    swap_word(row, open, {SegmentState::free, k_no_owner, open.generation});
    return false;
  }
  write(place, key, number, false);
  return true;
}

bool Chunks::take_replaced(std::uint32_t place, const FileKey& key, std::uint32_t number,
                           Replaced replaced) {
  ChunkRow& row = region_->chunk_row(place);
  const SegmentWord before = word_of(row);
  if (before.state != SegmentState::sealed || is_segment_pinned(*region_, segment_of(place)))
    return false;
  const SegmentWord evicting{SegmentState::evicting, region_->own_slot(), before.generation + 1};
  if (!swap_word(row, before, evicting)) return false;
  // A chunk of another version with the same path may be replaced, because the earlier version will
  // not be opened again.
  const bool may =
      replaced == Replaced::any ||
      (replaced == Replaced::kept ? is_kept(row)
                                  : row.path.load(std::memory_order_relaxed) == key.path);
  if (!may || is_of(row, key, number) || is_segment_pinned(*region_, segment_of(place)) ||
      row.is_mapped()) {
    swap_word(row, evicting, before);
    return false;
  }
  // Opens the place before the row changes. If this process dies later, forget_chunks_of frees the
  // open place. A place in the state `evicting` would be sealed as if it were unchanged.
  swap_word(row, evicting, {SegmentState::open, evicting.owner, evicting.generation});
  remove_name(place);
  write(place, key, number,
        replaced == Replaced::any || row.passed.load(std::memory_order_relaxed) != 0);
  return true;
}

std::uint32_t Chunks::place_for(std::uint32_t count) {
  RegionHeader& header = region_->header();
  if (is_full()) return k_none;
  const std::uint32_t each = region_->layout().chunks_of_segment(),
                      end = resident_segments(*region_);
  const std::uint32_t segments = (count + each - 1) / each;
  if (segments > end) return k_none;
  const auto is_free = [&](std::uint32_t segment) {
    return word_of(region_->segment_row(segment)).state == SegmentState::free;
  };
  // Each call moves the hint, so that two files that are opened at the same time get different
  // places.
  const std::uint32_t hint = header.chunk_hint.load(std::memory_order_relaxed);
  const std::uint32_t from = hint != 0 && hint <= end ? hint : end;
  for (const std::uint32_t top : {from, end}) {
    std::uint32_t run = 0;
    for (std::uint32_t segment = top; segment-- > 0;) {
      run = is_free(segment) ? run + 1 : 0;
      if (run < segments) continue;
      header.chunk_hint.store(segment, std::memory_order_relaxed);
      return segment * each;
    }
  }
  return k_none;
}

std::uint64_t Chunks::free_bytes() const {
  const std::uint32_t each = region_->layout().chunks_of_segment(),
                      end = resident_segments(*region_);
  std::uint64_t places = 0;
  for (std::uint32_t segment = 0; segment < end; ++segment) {
    const SegmentState state = word_of(region_->segment_row(segment)).state;
    if (state == SegmentState::free) places += each;
    if (state != SegmentState::chunks) continue;
    for (std::uint32_t place = segment * each; place < (segment + 1) * each; ++place)
      places += word_of(region_->chunk_row(place)).state == SegmentState::free ||
                        is_kept(region_->chunk_row(place))
                    ? 1
                    : 0;
  }
  return places * k_chunk_bytes;
}

std::uint32_t Chunks::any_place(const FileKey& key, std::uint32_t number) {
  // If a recent search found no place, avoids another search of the whole region.
  if (is_full()) return may_have_former(*region_, key) ? former_place(key, number) : k_none;
  const std::uint32_t each = region_->layout().chunks_of_segment(),
                      end = resident_segments(*region_);
  // Searches the segments that already belong to large files, then the free segments. Starts at the
  // end, far from the records of small files.
  for (const bool in_free : {false, true}) {
    for (std::uint32_t segment = end; segment-- > 0;) {
      const SegmentRow& row = region_->segment_row(segment);
      if (word_of(row).state != (in_free ? SegmentState::free : SegmentState::chunks)) continue;
      for (std::uint32_t place = segment * each; place < (segment + 1) * each; ++place) {
        if (take_place(place, key, number)) return place;
      }
    }
  }
  // A kept chunk does not replace chunks of other kinds.
  if ((number & k_kept) != 0) return k_none;
  if (const std::uint32_t place = kept_place(key, number); place != k_none) return place;
  count_passing();
  region_->header().chunks_full_until.store(base::coarse_monotonic_ns() + k_full_ns,
                                            std::memory_order_relaxed);
  return former_place(key, number);
}

// Takes the place of a chunk of an earlier version of the file.
std::uint32_t Chunks::former_place(const FileKey& key, std::uint32_t number) {
  const std::uint32_t end = resident_segments(*region_) * region_->layout().chunks_of_segment();
  bool is_any = false;
  for (std::uint32_t place = 0; place < end; ++place) {
    const ChunkRow& row = region_->chunk_row(place);
    if (row.path.load(std::memory_order_relaxed) != key.path ||
        row.version[0].load(std::memory_order_relaxed) == key.version[0])
      continue;
    is_any = true;
    if (take_replaced(place, key, number, Replaced::former_version)) return place;
  }
  if (!is_any) note_without_former(*region_, key);
  return k_none;
}

// Gives the place back. The caller must have opened the place, and no process may have a pin on it.
void Chunks::give_back(std::uint32_t place) const {
  ChunkRow& row = region_->chunk_row(place);
  remove_name(place);
  const bool passes = row.passed.load(std::memory_order_relaxed) != 0;
  if (passes) {
    // Leaves the place to the next chunk that passes.
    for (auto* const part : {&row.path, &row.version[0], &row.version[1]})
      part->store(0, std::memory_order_relaxed);
    row.passed.store(1, std::memory_order_relaxed);
    region_->header().passing_hand.store(place, std::memory_order_relaxed);
  }
  const SegmentWord own = word_of(row);
  swap_word(row, own,
            {passes ? SegmentState::sealed : SegmentState::free, k_no_owner, own.generation});
}

std::uint64_t Chunks::give_back_memory(std::uint32_t place, bool whatever) {
  ChunkRow& row = region_->chunk_row(place);
  const auto may_go = [&] {
    if (is_segment_pinned(*region_, segment_of(place)) || row.is_mapped()) return false;
    return whatever || (row.unread.load(std::memory_order_relaxed) == 0 &&
                        row.to_offer.load(std::memory_order_relaxed) == 0);
  };
  const SegmentWord before = word_of(row);
  if (before.state != SegmentState::sealed || !may_go()) return 0;
  const SegmentWord evicting{SegmentState::evicting, region_->own_slot(), before.generation + 1};
  if (!swap_word(row, before, evicting)) return 0;
  if (!may_go()) {
    swap_word(row, evicting, before);
    return 0;
  }
  // Opens the place before the row changes, as in take_replaced().
  const SegmentWord open{SegmentState::open, evicting.owner, evicting.generation};
  swap_word(row, evicting, open);
  std::uint64_t pages = 0;
  for (const auto& bits : row.present)
    pages += static_cast<std::uint64_t>(std::popcount(bits.load(std::memory_order_relaxed)));
  remove_name(place);
  write(place, {}, 0, /*passes=*/false);
  const auto window = region_->window(std::uint64_t{place} * k_chunk_bytes, k_chunk_bytes);
  if (window) base::sys::madvise(window->data(), window->size(), MADV_REMOVE);
  swap_word(row, open, {SegmentState::free, k_no_owner, open.generation});
  return pages * k_page_bytes;
}

}  // namespace cube::cache
