#include "cache/region/chunks.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "cache/base/file_io.h"
#include "cache/base/hash.h"
#include "cache/region/process_slots.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_second_hash = 0x9e3779b97f4a7c15ULL;

std::uint64_t hash_of(const FileKey& key, std::uint32_t number) {
  const std::uint64_t words[4] = {key.path, key.version[0], key.version[1], number};
  return base::hash_bytes(words, sizeof words);
}

// The two buckets in which a chunk may be.
struct Buckets {
  ChunkBucket* of[2];
};
Buckets buckets_of(const Region& region, std::uint64_t hash) {
  const std::uint32_t n = region.layout().chunk_bucket_count();
  return {{&region.chunk_bucket(static_cast<std::uint32_t>(hash % n)),
           &region.chunk_bucket(static_cast<std::uint32_t>((hash * k_second_hash >> 32) % n))}};
}

// No bucket leads to this place any more.
void remove_from(ChunkBucket& bucket, std::uint32_t place) {
  for (auto& slot : bucket.slots) {
    std::uint32_t word = place + 1;
    slot.compare_exchange_strong(word, 0, std::memory_order_acq_rel);
  }
}

void remove_everywhere(const Region& region, std::uint32_t place) {
  for (std::uint32_t i = 0, n = region.layout().chunk_bucket_count(); i < n; ++i) remove_from(region.chunk_bucket(i), place);
}

}  // namespace

FileKey key_of_file(std::string_view path, const FileStat& stat) {
  const std::uint64_t words[] = {stat.device(),
                                 stat.inode,
                                 stat.size,
                                 static_cast<std::uint64_t>(stat.modified.seconds),
                                 stat.modified.nanoseconds,
                                 static_cast<std::uint64_t>(stat.changed.seconds),
                                 stat.changed.nanoseconds};
  FileKey key{.path = base::hash_path(path)};
  for (std::uint64_t i = 0; i < 2; ++i) {
    // Two seeds make one hash of 128 bits, of the path and of the stat.
    key.version[i] = XXH3_64bits_withSeed(words, sizeof words, XXH3_64bits_withSeed(path.data(), path.size(), i + 1));
  }
  return key;
}

std::uint32_t Chunks::Claim::end_of_run(std::uint32_t page, std::uint32_t end, bool present) const {
  end = std::min(end, ChunkRow::k_pages);
  if (row_ == nullptr) return present ? page : end;
  while (page < end) {
    // Acquire: the bytes were written before; pairs with note_present.
    std::uint64_t bits = row_->present[page / 64].load(std::memory_order_acquire);
    if (present) bits = ~bits;
    bits >>= page % 64;
    if (bits != 0) return std::min(end, page + static_cast<std::uint32_t>(std::countr_zero(bits)));
    page = (page / 64 + 1) * 64;
  }
  return end;
}

bool Chunks::is_of(const ChunkRow& row, const FileKey& key, std::uint32_t number) const {
  return row.path.load(std::memory_order_relaxed) == key.path &&
         row.version[0].load(std::memory_order_relaxed) == key.version[0] &&
         row.version[1].load(std::memory_order_relaxed) == key.version[1] && row.number.load(std::memory_order_relaxed) == number;
}

Chunks::Claim Chunks::claim(std::uint32_t place) const {
  Claim claim;
  claim.counter_ = &region_->pin_row(region_->own_slot())[segment_of(place)];
  // seq_cst: we claim first and look at the word then, who replaces the chunk the other way round.
  claim.epoch_ = own_epoch.load(std::memory_order_relaxed);
  claim.counter_->fetch_add(1, std::memory_order_seq_cst);
  claim.row_ = &region_->chunk_row(place);
  claim.data_ = region_->segment(0) + std::uint64_t{place} * k_chunk_bytes;
  claim.place_ = place;
  return claim;
}

Chunks::Claim Chunks::claim_if(std::uint32_t place, const FileKey& key, std::uint32_t number) const {
  if (place >= region_->layout().chunk_count()) return {};
  const ChunkRow& row = region_->chunk_row(place);
  if (!is_of(row, key, number)) return {};
  Claim own = claim(place);
  const bool is_there = word_of(row, std::memory_order_seq_cst).state == SegmentState::sealed && is_of(row, key, number);
  return is_there ? std::move(own) : Claim();
}

Chunks::Claim Chunks::find(const FileKey& key, std::uint32_t number, std::uint32_t hint) const {
  if (Claim own = claim_if(hint, key, number); own) return own;
  for (const ChunkBucket* const bucket : buckets_of(*region_, hash_of(key, number)).of) {
    for (const auto& slot : bucket->slots) {
      const std::uint32_t word = slot.load(std::memory_order_acquire);
      if (word == 0) continue;
      if (Claim own = claim_if(word - 1, key, number); own) return own;
    }
  }
  return {};
}

// Nobody will read them any more.
void Chunks::drop_unread(ChunkRow& row) const {
  std::uint64_t pages = 0;
  for (auto& bits : row.ahead) pages += static_cast<std::uint64_t>(std::popcount(bits.exchange(0, std::memory_order_relaxed)));
  row.unread.store(0, std::memory_order_relaxed);
  if (pages != 0) region_->own_process().stats.count(base::Counter::block_wasted, pages * k_page_bytes);
}

// The caller has the row in state open, and leaves it in that state.
void Chunks::write(ChunkRow& row, const FileKey& key, std::uint32_t number) const {
  drop_unread(row);
  for (auto& bits : row.present) bits.store(0, std::memory_order_relaxed);
  row.path.store(key.path, std::memory_order_relaxed);
  for (int i = 0; i < 2; ++i) row.version[i].store(key.version[i], std::memory_order_relaxed);
  row.number.store(number, std::memory_order_relaxed);
}

bool Chunks::insert(std::uint64_t hash, std::uint32_t place) const {
  for (ChunkBucket* const bucket : buckets_of(*region_, hash).of) {
    for (auto& slot : bucket->slots) {
      std::uint32_t none = 0;
      // Release: who finds the place sees its row; pairs with the acquire in find.
      if (slot.compare_exchange_strong(none, place + 1, std::memory_order_release)) return true;
    }
  }
  return false;
}

bool Chunks::take_place(std::uint32_t place, const FileKey& key, std::uint32_t number) {
  const std::uint32_t segment = segment_of(place);
  if (segment >= resident_segments(*region_)) return false;
  const SegmentRow& of = region_->segment_row(segment);
  if (word_of(of).state == SegmentState::free) static_cast<void>(take_for_chunks(*region_, segment));
  if (word_of(of).state != SegmentState::chunks) return false;
  ChunkRow& row = region_->chunk_row(place);
  const SegmentWord before = word_of(row);
  if (before.state != SegmentState::free) return false;
  if (!swap_word(row, before, {SegmentState::open, region_->own_slot(), before.generation + 1})) return false;
  write(row, key, number);
  return true;
}

// The chunk of another version of the same file, which nobody opens any more.
bool Chunks::take_replaced(std::uint32_t place, const FileKey& key, std::uint32_t number) {
  ChunkRow& row = region_->chunk_row(place);
  const SegmentWord before = word_of(row);
  if (before.state != SegmentState::sealed || is_segment_pinned(*region_, segment_of(place))) return false;
  const SegmentWord evicting{SegmentState::evicting, region_->own_slot(), before.generation + 1};
  if (!swap_word(row, before, evicting)) return false;
  const bool is_old = row.path.load(std::memory_order_relaxed) == key.path && !is_of(row, key, number);
  if (!is_old || is_segment_pinned(*region_, segment_of(place)) || row.is_mapped.load(std::memory_order_seq_cst) != 0) {
    swap_word(row, evicting, before);
    return false;
  }
  const FileKey former{row.path.load(std::memory_order_relaxed),
                       {row.version[0].load(std::memory_order_relaxed), row.version[1].load(std::memory_order_relaxed)}};
  for (ChunkBucket* const bucket : buckets_of(*region_, hash_of(former, row.number.load(std::memory_order_relaxed))).of)
    remove_from(*bucket, place);
  swap_word(row, evicting, {SegmentState::open, evicting.owner, evicting.generation});
  write(row, key, number);
  return true;
}

std::uint32_t Chunks::place_for(std::uint32_t count) {
  RegionHeader& header = region_->header();
  const std::uint32_t each = region_->layout().chunks_of_segment(), end = resident_segments(*region_);
  const std::uint32_t segments = (count + each - 1) / each;
  if (segments > end) return k_none;
  const auto is_free = [&](std::uint32_t segment) { return word_of(region_->segment_row(segment)).state == SegmentState::free; };
  // Two files that are opened at the same time get places of their own, for each moves the hint.
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

std::uint32_t Chunks::any_place(const FileKey& key, std::uint32_t number) {
  const std::uint32_t each = region_->layout().chunks_of_segment(), end = resident_segments(*region_);
  // In a segment that belongs to large files already, then in a free one. From the top, away from the records of small files.
  for (const bool in_free : {false, true}) {
    for (std::uint32_t segment = end; segment-- > 0;) {
      const SegmentRow& row = region_->segment_row(segment);
      if (word_of(row).state != (in_free ? SegmentState::free : SegmentState::chunks)) continue;
      for (std::uint32_t place = segment * each; place < (segment + 1) * each; ++place) {
        if (take_place(place, key, number)) return place;
      }
    }
  }
  for (std::uint32_t place = 0; place < end * each; ++place) {
    const ChunkRow& row = region_->chunk_row(place);
    const bool is_same_path =
        row.path.load(std::memory_order_relaxed) == key.path && row.version[0].load(std::memory_order_relaxed) != key.version[0];
    if (is_same_path && take_replaced(place, key, number)) return place;
  }
  return k_none;
}

Chunks::Claim Chunks::make(const FileKey& key, std::uint32_t number, std::uint32_t wanted) {
  if (Claim own = find(key, number, wanted); own) return own;
  const bool is_taken = wanted < region_->layout().chunk_count() && take_place(wanted, key, number);
  // Another process may have made this chunk there meanwhile.
  if (!is_taken) {
    if (Claim own = find(key, number, wanted); own) return own;
  }
  const std::uint32_t place = is_taken ? wanted : any_place(key, number);
  if (place == k_none) return {};
  region_->header().has_chunks.store(1, std::memory_order_relaxed);
  ChunkRow& row = region_->chunk_row(place);
  // Nobody has a claim on the place before it is sealed, so that it can be given back until then.
  const bool is_known = insert(hash_of(key, number), place);
  const SegmentWord own = word_of(row);
  swap_word(row, own, {is_known ? SegmentState::sealed : SegmentState::free, k_no_owner, own.generation});
  return is_known ? find(key, number, place) : Claim();
}

namespace {

// For each word of a bitmap that has some of these pages: its number and their bits.
template <typename Act>
void for_each_word(const PageRun& pages, Act act) {
  for (std::uint32_t page = pages.first; page < pages.end;) {
    const std::uint32_t end = std::min(pages.end, (page / 64 + 1) * 64), n = end - page;
    act(page / 64, (n == 64 ? ~0ULL : (1ULL << n) - 1) << (page % 64));
    page = end;
  }
}

// The memory of the machine is looked at once for so many bytes: a look reads four files of /proc and /sys.
constexpr std::int64_t k_bytes_a_look = 32 << 20;
constinit std::atomic<std::int64_t> g_looked_for{0};

bool has_memory_for(Region& region, std::uint64_t bytes) {
  if (g_looked_for.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed) >= static_cast<std::int64_t>(bytes))
    return true;
  if (!region.has_memory_for(k_bytes_a_look)) return false;
  g_looked_for.store(k_bytes_a_look, std::memory_order_relaxed);
  return true;
}

}  // namespace

base::Result<base::Mapping> Chunks::window(const Claim& claim, const PageRun& pages) {
  const std::uint64_t at = std::uint64_t{claim.place()} * k_chunk_bytes + pages.first * k_page_bytes;
  const std::uint64_t bytes = pages.count() * k_page_bytes;
  if (!has_memory_for(*region_, bytes)) return base::fail(ENOMEM);
  if (const auto reserved = region_->reserve_data(at, bytes); !reserved) return base::fail(reserved.error().value);
  return region_->window(at, bytes);
}

base::Result<void> Chunks::copy_in(int region_fd, const Claim& claim, const PageRun& pages, const std::byte* from) {
  const std::uint64_t bytes = pages.count() * k_page_bytes;
  if (!has_memory_for(*region_, bytes)) return base::fail(ENOMEM);
  return base::write_at(region_fd, from, bytes, claim.offset(*region_) + pages.first * k_page_bytes);
}

void Chunks::note_ahead(const Claim& claim, const PageRun& pages) const {
  // The count comes first, so that nobody takes more from it than there is.
  claim.row_->unread.fetch_add(pages.count(), std::memory_order_relaxed);
  for_each_word(
      pages, [&](std::uint32_t word, std::uint64_t bits) { claim.row_->ahead[word].fetch_or(bits, std::memory_order_relaxed); });
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

void Chunks::forget(const FileKey& key, std::uint32_t number) {
  while (const Claim own = find(key, number)) {
    ChunkRow& row = region_->chunk_row(own.place());
    const SegmentWord before = word_of(row);
    const SegmentWord evicting{SegmentState::evicting, region_->own_slot(), before.generation + 1};
    if (before.state != SegmentState::sealed || !swap_word(row, before, evicting)) continue;
    for (ChunkBucket* const bucket : buckets_of(*region_, hash_of(key, number)).of) remove_from(*bucket, own.place());
    // Its readers go on: the bytes stay as they are.
    row.version[0].fetch_xor(1, std::memory_order_relaxed);
    swap_word(row, evicting, {SegmentState::sealed, k_no_owner, evicting.generation});
  }
}

void Chunks::note_present(const Claim& claim, const PageRun& pages) const {
  for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits) {
    // Release: the bytes come first; pairs with end_of_run.
    claim.row_->present[word].fetch_or(bits, std::memory_order_release);
  });
  const std::uint64_t bytes = pages.count() * k_page_bytes;
  region_->segment_row(segment_of(claim.place())).used_bytes.fetch_add(bytes, std::memory_order_relaxed);
  region_->header().used_bytes.fetch_add(bytes, std::memory_order_relaxed);
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
      sum.unread += region.chunk_row(place).unread.load(std::memory_order_relaxed) * Chunks::k_page_bytes;
  }
  return sum;
}

void forget_chunks_of(Region& region, std::uint32_t process_slot) {
  if (region.header().has_chunks.load(std::memory_order_relaxed) == 0) return;
  for (std::uint32_t place = 0, n = region.layout().chunk_count(); place < n; ++place) {
    ChunkRow& row = region.chunk_row(place);
    const SegmentWord word = word_of(row);
    if (word.owner != process_slot) continue;
    // Nothing of it has changed, and others may have claims on it.
    if (word.state == SegmentState::evicting) swap_word(row, word, {SegmentState::sealed, k_no_owner, word.generation});
    if (word.state != SegmentState::open) continue;
    remove_everywhere(region, place);
    swap_word(row, word, {SegmentState::free, k_no_owner, word.generation});
  }
}

}  // namespace cube::cache
