#include "cache/tier/shared/cluster_blocks.h"

#include <algorithm>

#include "cache/base/clock.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

// The most places that one call visits. The thread must also handle requests of programs.
constexpr std::uint32_t k_places_a_call = 4096;
constexpr std::uint64_t k_put_off_ns = 1000 * base::k_ns_per_ms;

}  // namespace

void ClusterBlocks::begin() {
  leave();
  seen_.assign(chunks_.region().layout().chunk_count(), 0);
  seen_wholes_ = 0;
  place_ = static_cast<std::uint32_t>(seen_.size());
}

bool ClusterBlocks::take(std::uint32_t place) {
  // Loads the count before the walk over the blocks. If a block becomes whole later, the count
  // differs at the next visit.
  const std::uint32_t wholes = chunks_.wholes(place);
  if (wholes == seen_[place]) return false;
  auto chunk = chunks_.chunk_at(place);
  // The place is being given to another file at this moment.
  if (!chunk) return false;
  seen_[place] = wholes;
  // If the file was changed, or if its row was reused for another file, the path is missing.
  // Without the path, the file of the bytes is unknown.
  if (!names_.find(chunk->key, name_)) return false;
  at_ = std::uint64_t{chunk->number} * k_chunk_bytes;
  end_ = std::min(at_ + k_chunk_bytes, name_.stat.size);
  claim_ = std::move(chunk->claim);
  return true;
}

bool ClusterBlocks::next_chunk() {
  const auto places = static_cast<std::uint32_t>(seen_.size());
  if (place_ == places) {
    const std::uint64_t wholes = chunks_.wholes();
    const bool is_to_look_again = again_ns_ != 0 && base::coarse_monotonic_ns() >= again_ns_;
    if (wholes == seen_wholes_ && !is_to_look_again) return false;
    if (is_to_look_again) again_ns_ = 0;
    seen_wholes_ = wholes;
    place_ = 0;
  }
  for (const std::uint32_t last = std::min(places - place_, k_places_a_call) + place_;
       place_ != last;) {
    if (take(place_++)) return true;
  }
  return false;
}

bool ClusterBlocks::show() {
  const std::uint64_t begin = at_;
  at_ = std::min(at_ + block_, end_);
  const PageRun pages = pages_of(begin, at_);
  if (!claim_.has_all(pages) || chunks_.is_shared(claim_, pages)) return false;
  found_.name = block_name_.emplace(name_.path(), BlockPlace{block_, begin / block_}).text();
  if (found_.name.empty()) return false;
  found_.path = name_.path();
  found_.stat = name_.stat;
  found_.bytes = {claim_.data() + begin % k_chunk_bytes, at_ - begin};
  found_.fetched_ns = base::wall_ns();
  found_.pages = pages;
  return has_found_ = true;
}

bool ClusterBlocks::next() {
  if (block_ == 0 || seen_.empty()) return false;
  end();
  while (claim_ || next_chunk()) {
    while (at_ < end_) {
      if (show()) return true;
    }
    claim_.release();
  }
  return false;
}

bool ClusterBlocks::find(const FileKey& file, std::uint64_t at) {
  leave();
  if (block_ == 0 || !names_.find(file, name_) || at >= name_.stat.size) return false;
  claim_ = chunks_.find(file, chunk_of(at));
  at_ = at;
  end_ = name_.stat.size;
  if (claim_ && show()) return true;
  leave();
  return false;
}

void ClusterBlocks::end(bool is_put_off) {
  if (!std::exchange(has_found_, false)) return;
  if (!is_put_off) return chunks_.note_shared(claim_, found_.pages);
  // Only the object of the leader's walk (see begin()) finds the block again.
  if (seen_.empty()) return;
  seen_[claim_.place()] = chunks_.wholes(claim_.place()) - 1;
  if (again_ns_ == 0) again_ns_ = base::coarse_monotonic_ns() + k_put_off_ns;
}

void ClusterBlocks::leave() {
  has_found_ = false;
  claim_.release();
}

void ClusterBlocks::forget() {
  has_found_ = false;
  claim_.forget();
}

}  // namespace cube::cache
