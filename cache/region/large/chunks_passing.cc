// Chunks that pass. If no place is free, new chunks use a limited part of the places, in which they
// replace the oldest chunk first.
//
// A search visits all places in a circle, starting after the place that was taken last. The search
// skips a place of the limited part if half of the part's places are older. Otherwise, if pins hold
// the older chunks, the search would evict a recent chunk too early. The search adds places to the
// limited part until the part has its full size. Places never leave the part. The places of the
// part are counted again whenever the region turns out to be full. So if a process dies between two
// steps, the count is wrong for only a second.
//
// The search spares a chunk with blocks that the tiers are about to get, so that all data reaches
// the disk even if the data is larger than the memory.
#include <algorithm>

#include "cache/base/clock.h"
#include "cache/region/large/chunks.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

// k_usual_places has room for four windows of read-ahead. With fewer places than k_fewest_places,
// chunks would be replaced before they are read.
constexpr std::uint32_t k_usual_places = (64U << 20) / k_chunk_bytes, k_fewest_places = 4;

}  // namespace

std::uint32_t Chunks::most_passing(std::uint32_t places) {
  return places / 2 < k_fewest_places ? 0
                                      : std::min(std::max(places / 8, k_usual_places), places / 2);
}

bool Chunks::is_full() const {
  return base::coarse_monotonic_ns() <
         region_->header().chunks_full_until.load(std::memory_order_relaxed);
}

std::uint64_t Chunks::passing_bytes() const {
  return std::uint64_t{region_->header().most_passing.load(std::memory_order_relaxed)} *
         k_chunk_bytes;
}

void Chunks::count_passing() const {
  const std::uint32_t each = region_->layout().chunks_of_segment(),
                      end = resident_segments(*region_);
  std::uint32_t places = 0, passing = 0;
  for (std::uint32_t segment = 0; segment < end; ++segment) {
    if (word_of(region_->segment_row(segment)).state != SegmentState::chunks) continue;
    places += each;
    for (std::uint32_t place = segment * each; place < (segment + 1) * each; ++place)
      passing += region_->chunk_row(place).passed.load(std::memory_order_relaxed) != 0 ? 1 : 0;
  }
  RegionHeader& header = region_->header();
  header.passing.store(passing, std::memory_order_relaxed);
  header.most_passing.store(most_passing(places), std::memory_order_relaxed);
}

std::uint32_t Chunks::passing_place(const FileKey& key, std::uint32_t number, Pass pass) {
  RegionHeader& header = region_->header();
  const std::uint32_t end = resident_segments(*region_) * region_->layout().chunks_of_segment();
  const std::uint32_t most = header.most_passing.load(std::memory_order_relaxed);
  if (end == 0 || most == 0) return k_none;
  const std::uint64_t newest = header.passing_order.load(std::memory_order_relaxed);
  const bool spares_offers = pass == Pass::may_pass && is_tier_writer_alive(header);
  const std::uint32_t hand = header.passing_hand.load(std::memory_order_relaxed) % end;
  for (std::uint32_t step = 0; step < end; ++step) {
    const std::uint32_t place = (hand + step) % end;
    const ChunkRow& row = region_->chunk_row(place);
    if (SegmentWord::of_word(row.word.load(std::memory_order_relaxed)).state !=
        SegmentState::sealed)
      continue;
    if (row.is_mapped()) continue;
    const std::uint64_t passed = row.passed.load(std::memory_order_relaxed);
    const std::uint32_t passing = header.passing.load(std::memory_order_relaxed);
    if (passed == 0 ? passing >= most : passed + passing / 2 > newest) continue;
    if (spares_offers && row.to_offer.load(std::memory_order_relaxed) != 0) {
      waits_for_tiers_ = true;
      continue;
    }
    if (!take_replaced(place, key, number, Replaced::any)) continue;
    waits_for_tiers_ = false;
    if (passed == 0) header.passing.fetch_add(1, std::memory_order_relaxed);
    header.passing_hand.store((place + 1) % end, std::memory_order_relaxed);
    return place;
  }
  return k_none;
}

}  // namespace cube::cache
