#include "cache/region/large/chunks.h"

#include <algorithm>
#include <bit>

#include "cache/base/hash.h"
#include "cache/base/sys.h"
#include "cache/region/lanes.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_second_hash = 0x9e3779b97f4a7c15ULL;
constexpr int k_tries_for_maker = 100;

std::uint64_t hash_of(const FileKey& key, std::uint32_t number) {
  const std::uint64_t words[4] = {key.path, key.version[0], key.version[1], number};
  return base::hash_bytes(words, sizeof words);
}

// The two candidate buckets of a chunk.
struct Buckets {
  ChunkBucket* of[2];
};
Buckets buckets_of(const Region& region, std::uint64_t hash) {
  const std::uint32_t n = region.layout().chunk_bucket_count();
  const auto first = static_cast<std::uint32_t>(hash % n);
  // The second bucket differs from the first if there are at least two buckets.
  const auto second =
      (first + 1 + static_cast<std::uint32_t>((hash * k_second_hash >> 32) % std::max(n - 1, 1U))) %
      n;
  return {{&region.chunk_bucket(first), &region.chunk_bucket(second)}};
}

std::ptrdiff_t taken_slots(const ChunkBucket& bucket) {
  return std::count_if(std::begin(bucket.slots), std::end(bucket.slots),
                       [](const auto& slot) { return slot.load(std::memory_order_relaxed) != 0; });
}

// Removes the place from the bucket.
void remove_from(ChunkBucket& bucket, std::uint32_t place) {
  for (auto& slot : bucket.slots) {
    std::uint32_t word = place + 1;
    slot.compare_exchange_strong(word, 0, std::memory_order_acq_rel);
  }
}

void remove_everywhere(const Region& region, std::uint32_t place) {
  for (std::uint32_t i = 0, n = region.layout().chunk_bucket_count(); i < n; ++i)
    remove_from(region.chunk_bucket(i), place);
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
    // With two seeds, the two words together are a hash of 128 bits, which covers the path and the
    // stat.
    key.version[i] = XXH3_64bits_withSeed(words, sizeof words,
                                          XXH3_64bits_withSeed(path.data(), path.size(), i + 1));
  }
  return key;
}

std::uint64_t block_hash_of(const FileKey& key, std::uint64_t number) {
  const std::uint64_t words[3] = {key.version[0], key.version[1], number};
  return base::hash_bytes(words, sizeof words);
}

std::uint32_t Chunks::Claim::end_of_run(std::uint32_t page, std::uint32_t end, bool present) const {
  end = std::min(end, ChunkRow::k_pages);
  if (row_ == nullptr) return present ? page : end;
  while (page < end) {
    // Acquire: pairs with the release in note_present. If the bit is set, the bytes are written.
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
         row.version[1].load(std::memory_order_relaxed) == key.version[1] &&
         row.number.load(std::memory_order_relaxed) == number;
}

Chunks::Claim Chunks::claim(std::uint32_t place) const {
  Claim claim;
  claim.epoch_ = own_epoch.load(std::memory_order_relaxed);
  // seq_cst: this process pins first, then loads the word. A process that replaces the chunk stores
  // the word first, then loads the counters.
  claim.counter_ = pin_segment(*region_, segment_of(place));
  claim.row_ = &region_->chunk_row(place);
  claim.data_ = region_->segment(0) + std::uint64_t{place} * k_chunk_bytes;
  claim.place_ = place;
  return claim;
}

Chunks::Claim Chunks::claim_if(std::uint32_t place, const FileKey& key,
                               std::uint32_t number) const {
  if (place >= region_->layout().chunk_count()) return {};
  const ChunkRow& row = region_->chunk_row(place);
  if (!is_of(row, key, number)) return {};
  Claim own = claim(place);
  const bool is_there = word_of(row, std::memory_order_seq_cst).state == SegmentState::sealed &&
                        is_of(row, key, number);
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

// Removes the chunk in this place from its buckets.
void Chunks::remove_name(std::uint32_t place) const {
  const ChunkRow& row = region_->chunk_row(place);
  const FileKey key{row.path.load(std::memory_order_relaxed),
                    {row.version[0].load(std::memory_order_relaxed),
                     row.version[1].load(std::memory_order_relaxed)}};
  for (ChunkBucket* const bucket :
       buckets_of(*region_, hash_of(key, row.number.load(std::memory_order_relaxed))).of)
    remove_from(*bucket, place);
}

bool Chunks::insert(std::uint64_t hash, std::uint32_t place) const {
  Buckets buckets = buckets_of(*region_, hash);
  // Tries the emptier bucket first, so that both buckets fill evenly.
  if (taken_slots(*buckets.of[1]) < taken_slots(*buckets.of[0]))
    std::swap(buckets.of[0], buckets.of[1]);
  for (ChunkBucket* const bucket : buckets.of) {
    for (auto& slot : bucket->slots) {
      std::uint32_t none = 0;
      // Release: a process that finds the place sees the place's row. Pairs with the acquire in
      // find.
      if (slot.compare_exchange_strong(none, place + 1, std::memory_order_release)) return true;
    }
  }
  return false;
}

// Whether another process has made the same chunk, for another of its blocks, while this process
// searched for a place. `place` is the place of this process, which is open and has the chunk's
// key. If two processes have open places for the chunk, at least one of them sees the other place.
// The chunk in the lower place stays.
bool Chunks::is_made_by_other(const FileKey& key, std::uint32_t number, std::uint32_t place,
                              std::uint32_t wanted, Claim& other) const {
  const auto rival = [&] {
    for (const ChunkBucket* const bucket : buckets_of(*region_, hash_of(key, number)).of) {
      for (const auto& slot : bucket->slots) {
        const std::uint32_t at = slot.load(std::memory_order_seq_cst) - 1;
        if (at == place || at >= region_->layout().chunk_count()) continue;
        const ChunkRow& row = region_->chunk_row(at);
        const SegmentState state = word_of(row, std::memory_order_seq_cst).state;
        if ((state == SegmentState::open || state == SegmentState::sealed) &&
            is_of(row, key, number))
          return at;
      }
    }
    return k_none;
  };
  bool is_lower = false;
  for (int tries = 0; tries < k_tries_for_maker && !is_lower; ++tries) {
    const std::uint32_t at = rival();
    if (at == k_none) return false;
    if (other = find(key, number, wanted); other) return true;
    is_lower = at < place;
    // The process with the higher place gives way. But a process that has not seen the lower place
    // yet may be about to seal the higher place, so this process looks again.
    if (!is_lower) base::sys::raw(SYS_sched_yield);
  }
  return is_lower;
}

Chunks::Claim Chunks::make(const FileKey& key, std::uint32_t number, std::uint32_t wanted,
                           Pass pass) {
  if (Claim own = find(key, number, wanted); own) return own;
  const bool is_taken = wanted < region_->layout().chunk_count() && take_place(wanted, key, number);
  // Another process may have made this chunk in the meantime.
  if (!is_taken) {
    if (Claim own = find(key, number, wanted); own) return own;
  }
  std::uint32_t place = is_taken ? wanted : any_place(key, number);
  waits_for_tiers_ = false;
  if (place == k_none && pass != Pass::no) place = passing_place(key, number, pass);
  return place == k_none ? Claim() : seal(place, key, number, wanted);
}

// Makes the place findable. The place must be open and must have the chunk's key. Gives the place
// back if another process has made the chunk, or if the buckets have no room.
Chunks::Claim Chunks::seal(std::uint32_t place, const FileKey& key, std::uint32_t number,
                           std::uint32_t wanted) {
  region_->header().has_chunks.store(1, std::memory_order_relaxed);
  ChunkRow& row = region_->chunk_row(place);
  // No process has a pin on the place until it is sealed. So until then, the place can be given
  // back.
  bool is_known = insert(hash_of(key, number), place);
  // If two processes make the same chunk, at least one of them sees the entry of the other after
  // this fence.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Claim other;
  if (is_known && is_made_by_other(key, number, place, wanted, other)) {
    remove_name(place);
    // The other process seals its place a few instructions later, so this process waits. If the
    // other process is stopped before that, this process keeps its own place, too. An empty Claim
    // would mean that no place is left, and large files would then be refused for a second.
    for (int tries = 0; !other && tries < k_tries_for_maker; ++tries) {
      other = find(key, number, wanted);
      if (!other) base::sys::raw(SYS_sched_yield);
    }
    is_known = !other && insert(hash_of(key, number), place);
  }
  if (!is_known) {
    give_back(place);
    return other;
  }
  const SegmentWord own = word_of(row);
  swap_word(row, own, {SegmentState::sealed, k_no_owner, own.generation});
  return find(key, number, place);
}

void Chunks::forget(const FileKey& key, std::uint32_t number) {
  while (const Claim own = find(key, number)) {
    ChunkRow& row = region_->chunk_row(own.place());
    const SegmentWord before = word_of(row);
    const SegmentWord evicting{SegmentState::evicting, region_->own_slot(), before.generation + 1};
    if (before.state != SegmentState::sealed || !swap_word(row, before, evicting)) continue;
    for (ChunkBucket* const bucket : buckets_of(*region_, hash_of(key, number)).of)
      remove_from(*bucket, own.place());
    // The chunk's readers can continue, because its bytes do not change.
    row.version[0].fetch_xor(1, std::memory_order_relaxed);
    swap_word(row, evicting, {SegmentState::sealed, k_no_owner, evicting.generation});
  }
}

void forget_chunks_of(Region& region, std::uint32_t process_slot) {
  if (region.header().has_chunks.load(std::memory_order_relaxed) == 0) return;
  for (std::uint32_t place = 0, n = region.layout().chunk_count(); place < n; ++place) {
    ChunkRow& row = region.chunk_row(place);
    const SegmentWord word = word_of(row);
    if (word.owner != process_slot) continue;
    // The chunk has not changed, and other processes may have pins on it, so it is sealed again.
    if (word.state == SegmentState::evicting)
      swap_word(row, word, {SegmentState::sealed, k_no_owner, word.generation});
    if (word.state != SegmentState::open) continue;
    remove_everywhere(region, place);
    swap_word(row, word, {SegmentState::free, k_no_owner, word.generation});
    region.header().chunks_full_until.store(0, std::memory_order_relaxed);
  }
}

}  // namespace cube::cache
