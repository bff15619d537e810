// Part of Prefetcher: continues the fetch of a file that turns out to be large.
#include <cerrno>
#include <new>

#include "prefetch/work/prefetcher.h"

namespace cube::prefetch {

using Large = LargeFetch::Ending;

bool Prefetcher::may_be_large(const PlannedFile& file) const {
  // A source with an allowance wants only files that are no larger than the files already read.
  return cache_.large().are_served() && file.allowance == nullptr &&
         !cache_.ahead().origin_of(file.path).traits().is_whole_in_one_read;
}

bool Prefetcher::is_large(const PlannedFile& file, const cache::FileStat& stat) const {
  return stat.is_regular() && stat.size > cache_.ahead().max_file() && may_be_large(file);
}

bool Prefetcher::hand_on(std::unique_ptr<PlannedFetch>& flight) {
  std::unique_ptr<LargeFetch> fetch(new (std::nothrow) LargeFetch);
  if (fetch == nullptr) return false;
  note_placed(*flight);
  // Gives up the flight, so that a program that opens the file does not wait for this fetch.
  flight->fetch.give_up();
  fetch->file = std::move(flight->file);
  PlannedFile& file = fetch->file;
  bool is_taken = false;
  try {
    is_taken = large_->submit(fetch);
  } catch (...) {
    is_taken = false;
  }
  if (is_taken) {
    flight.reset();
    return true;
  }
  if (fetch != nullptr) flight->file = std::move(file);
  return false;
}

bool Prefetcher::hand_on_range(std::unique_ptr<PlannedFetch>& flight, bool& is_wrong) {
  const NamedRange named = named_range(flight->file.path);
  if (flight->file.allowance != nullptr || !flight->file.range.is_all() ||
      named.kind == NamedRange::Kind::none)
    return false;
  is_wrong = named.kind == NamedRange::Kind::wrong;
  if (is_wrong || !cache_.large().are_served()) return false;
  const std::string path = flight->file.path;
  flight->file.range = named.range;
  flight->file.path.resize(named.path.size());
  if (hand_on(flight)) return true;
  flight->file.path = path;
  return false;
}

// Fetches a file that is small after all. The engine fetches the whole file even if only a part was
// named.
void Prefetcher::fetch_small(std::unique_ptr<LargeFetch> fetch) {
  const std::uint32_t reader = fetch->file.reader;
  const std::uint64_t sequence = fetch->file.sequence;
  fetch->file.range = {};
  std::unique_ptr<PlannedFetch> flight(
      new (std::nothrow) PlannedFetch(cache_, std::move(fetch->file), options_.use_ring));
  if (flight == nullptr) {
    settle(reader);
    return one_has_ended(reader, sequence);
  }
  unplaced_.fetch_add(1, std::memory_order_relaxed);
  begin(std::move(flight));
}

void Prefetcher::large_ended(std::unique_ptr<LargeFetch> fetch) {
  const PlannedFile& file = fetch->file;
  switch (fetch->ending) {
    case Large::small: return fetch_small(std::move(fetch));
    case Large::whole:
      large_count_.fetch_add(1, std::memory_order_relaxed);
      (fetch->fetched != 0 ? fetched_ : cached_).fetch_add(1, std::memory_order_relaxed);
      if (fetch->fetched != 0) cache_.stats().count(base::Counter::prefetch_fetched);
      break;
    case Large::no_room: refuse(file, Refused::no_room, 0, fetch->bytes, fetch->missing); break;
    case Large::not_a_file: refuse(file, Refused::not_a_file); break;
    case Large::bad_range: {
      PlannedFile named = file;
      named.path = text_of_range(file.path, file.range);
      refuse(named, Refused::bad_range);
      break;
    }
    case Large::busy: refuse(file, Refused::busy, 0, fetch->bytes, fetch->missing); break;
    case Large::failed:
      refuse(file,
             fetch->error == ENOENT || fetch->error == ENOTDIR ? Refused::missing : Refused::failed,
             fetch->error);
      break;
    case Large::stopped: break;
  }
  settle(file.reader);
  one_has_ended(file.reader, file.sequence);
  pump();
}

}  // namespace cube::prefetch
