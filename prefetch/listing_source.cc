#include "prefetch/listing_source.h"

#include "cache/base/hash.h"

namespace cube::prefetch {

void ListingSource::take_posted() {
  std::string directory;
  cache::Listings listings = cache_.listings();
  while (listings.take(directory)) {
    const std::uint64_t hash = base::hash_path(directory);
    if (cache::ListedRow* const row = listings.find(hash); row != nullptr) listings.take_charge(*row);
    if (known_.insert(hash).second) waiting_.push_back(directory);
  }
}

bool ListingSource::next_of_walk(PlannedFile& file) {
  while (walk_.is_walking()) {
    const DirWalk::Found found = walk_.next();
    if (found.kind == DirWalk::Found::directory) walk_.leave_out();
    if (found.kind != DirWalk::Found::file && found.kind != DirWalk::Found::link) continue;
    file.path = walk_.path();
    file.reader = k_reader;
    file.must_stay = true;
    file.sequence = sequence_++;
    return true;
  }
  return false;
}

PathSource::Next ListingSource::next(PlannedFile& file) {
  take_posted();
  while (true) {
    // What does not stay would be in the way of what is announced or listed for good reason.
    if (cache_.is_full()) {
      walk_ = {};
      walk_.use_packs(packs_);
      waiting_.clear();
      return Next::none_yet;
    }
    if (next_of_walk(file)) return Next::file;
    if (waiting_.empty()) return Next::none_yet;
    const std::string directory = std::move(waiting_.front());
    waiting_.pop_front();
    // A directory that cannot be listed any more is no trouble of the job's.
    walk_.begin(directory);
  }
}

}  // namespace cube::prefetch
