#include "prefetch/order/listing_source.h"

#include <algorithm>

#include "cache/base/clock.h"
#include "cache/base/hash.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_kib = 1024;

// How many bytes may be fetched from any listed directory, even if none of it was read.
constexpr std::uint64_t k_first_bytes = 64 * k_kib;
// With fewer files read, it is unknown whether the program will read the fetched files.
constexpr std::uint64_t k_files_that_show = 16, k_one_in = 2;
constexpr std::uint64_t k_times_read = 2, k_times_ahead = 4;

// The limit on the size of a fetched file: this many times the average size of the files read, or
// this share of the bytes that may still be fetched, whichever is larger. Larger files are left to
// the program.
constexpr std::uint64_t k_times_average = 2, k_share = 64;
// A closed directory is opened again only when the bytes that may be fetched from it reach this
// share of the bytes fetched before. Otherwise the directory would be opened for each file.
constexpr std::uint64_t k_reopen_share = 8;

// If there are at most this many windows, each call of next() checks all windows. If there are
// more, next() checks them only every k_between_looks_ns.
constexpr std::size_t k_few_windows = 64;
constexpr std::uint64_t k_between_looks_ns = 5 * base::k_ns_per_ms;
constexpr std::uint64_t k_reads_follow_ns = 1000 * base::k_ns_per_ms;

}  // namespace

std::uint64_t may_be_fetched(const ListingReads& reads) {
  std::uint64_t most = std::max(k_first_bytes, k_times_read * reads.read);
  const bool reads_on = reads.files >= k_files_that_show && k_one_in * reads.early >= reads.read;
  if (reads_on) most = std::max(most, reads.early + k_times_ahead * reads.read);
  return most > reads.fetched ? most - reads.fetched : 0;
}

void ListingSource::take_posted() {
  std::string directory;
  while (windows_.size() < k_most_windows && listings_.take(directory)) {
    const std::uint64_t hash = base::hash_path(directory);
    cache::ListedRow* const row = listings_.find(hash);
    if (row == nullptr) continue;
    listings_.take_charge(*row);
    const bool is_known = std::any_of(windows_.begin(), windows_.end(),
                                      [&](const auto& window) { return window->hash == hash; });
    if (is_known) continue;
    auto window = std::make_unique<Window>();
    window->directory = directory;
    window->hash = hash;
    windows_.push_back(std::move(window));
  }
}

void ListingSource::drop_all() {
  windows_.clear();
  at_ = 0;
}

bool ListingSource::is_following_reads() {
  if (windows_.empty()) return false;
  const std::uint64_t now = base::monotonic_ns();
  const std::uint32_t reads = listings_.reads();
  if (std::exchange(seen_reads_, reads) != reads) reads_grew_ns_ = now;
  return now - reads_grew_ns_ < k_reads_follow_ns;
}

bool ListingSource::open_walk(Window& window) {
  window.walked = ++walked_;
  if (window.walk != nullptr) return true;
  Window* oldest = nullptr;
  std::size_t open = 0;
  for (const auto& other : windows_) {
    if (other->walk == nullptr) continue;
    ++open;
    if (oldest == nullptr || other->walked < oldest->walked) oldest = other.get();
  }
  if (open >= k_most_walks) {
    oldest->position = oldest->walk->position();
    oldest->walk.reset();
  }
  window.walk = std::make_unique<DirWalk>();
  window.walk->use_origins(origins_);
  return window.walk->begin(window.directory, window.position) == 0;
}

void ListingSource::begin(Window& window) {
  if (std::exchange(window.is_begun, true)) return;
  std::size_t held = 0;
  for (const auto& other : windows_) held += other->names != nullptr ? other->names->size() : 0;
  auto names = std::make_unique<ListingOrder>();
  if (held >= most_names_ ||
      !names->read(window.directory, origins_, std::min(most_names_ - held, k_most_names_of_one)))
    return;
  names->choose_order([&](const std::string& path) { return cache_.ahead().is_here(path); });
  window.names = std::move(names);
}

ListingSource::Given ListingSource::give_next(Window& window, PlannedFile& file) {
  begin(window);
  // If the directory can no longer be listed, its files are not fetched; the job is not harmed.
  if (window.names == nullptr && !open_walk(window)) return Given::nothing_more;
  if (!(window.names != nullptr ? window.names->next(file.path) : window.walk->next_file())) {
    window.is_over = true;
    window.names.reset();
    window.walk.reset();
    return Given::nothing_now;
  }
  if (window.names == nullptr) file.path = window.walk->path();
  file.reader = k_reader;
  file.must_stay = true;
  file.sequence = sequence_++;
  file.allowance = window.allowance;
  window.allowance->promise(file.promised_bytes);
  return Given::file;
}

ListingSource::Given ListingSource::give(Window& window, PlannedFile& file) {
  cache::ListedRow* const row = listings_.find(window.hash);
  if (row == nullptr) return Given::nothing_more;
  const std::uint64_t promised = window.allowance->promised();
  // Counts whole KiB only; the remainder is counted with the next file.
  const auto spent = static_cast<std::uint32_t>(window.allowance->take_spent(k_kib));
  if (spent != 0) row->fetched_kib.fetch_add(spent, std::memory_order_relaxed);
  if (listings_.is_old(*row)) {
    listings_.give_back(*row);
    return Given::nothing_more;
  }
  if (window.is_over) return promised == 0 ? Given::nothing_more : Given::nothing_now;
  const auto bytes = [](const auto& kib) { return kib.load(std::memory_order_relaxed) * k_kib; };
  ListingReads reads;
  reads.read = bytes(row->read_kib);
  reads.early = bytes(row->early_kib);
  reads.fetched = bytes(row->fetched_kib) + promised;
  reads.files = std::max<std::uint64_t>(row->files.load(std::memory_order_relaxed), 1);
  const std::uint64_t left = may_be_fetched(reads);
  const std::uint64_t average = std::max(reads.read / reads.files, k_kib);
  const bool is_open = window.walk != nullptr || window.names != nullptr;
  // Files differ in size, so the limit must leave bytes for one more file than planned.
  if (left < (is_open ? 2 * average : std::max(2 * average, reads.fetched / k_reopen_share)))
    return Given::nothing_now;
  file.promised_bytes = average;
  file.most_bytes = std::max(k_times_average * average, left / k_share);
  return give_next(window, file);
}

PathSource::Next ListingSource::next(PlannedFile& file) {
  take_posted();
  if (windows_.empty()) return Next::none_yet;
  // In the ring, these files would compete with the files of announcements and of a list.
  if (cache_.ahead().is_full()) {
    drop_all();
    return Next::none_yet;
  }
  if (windows_.size() > k_few_windows && base::monotonic_ns() < not_before_ns_)
    return Next::none_yet;
  for (std::size_t looked_at = 0; looked_at < windows_.size();) {
    at_ %= windows_.size();
    switch (give(*windows_[at_], file)) {
      case Given::file: return Next::file;
      case Given::nothing_now:
        ++looked_at;
        ++at_;
        break;
      case Given::nothing_more:
        std::swap(windows_[at_], windows_.back());
        windows_.pop_back();
        break;
    }
    if (windows_.empty()) break;
  }
  not_before_ns_ = base::monotonic_ns() + k_between_looks_ns;
  return Next::none_yet;
}

}  // namespace cube::prefetch
