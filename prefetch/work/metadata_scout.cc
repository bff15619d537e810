#include "prefetch/work/metadata_scout.h"

#include <cstring>
#include <mutex>
#include <new>

#include "cache/base/hash.h"
#include "cache/base/process/sandbox.h"
#include "cache/base/sanitizers.h"

namespace cube::prefetch {
namespace {

// A stat waits for the origin and takes almost no processor time.
constexpr unsigned k_scout_threads = 16;
// A walk of a tree alternates between directories of several levels.
constexpr std::size_t k_parents = 16;

}  // namespace

MetadataScout::MetadataScout(cache::FileCache& cache)
    : ThreadCrew({.without = "metadata is not gathered", .nice = 1}),
      cache_(cache),
      next_lists_(k_parents, cache::NextDirectories(cache::NextDirectories::Comes::to_some)) {}

MetadataScout::Gather MetadataScout::gather_under_way() {
  const std::scoped_lock lock(mutex_);
  for (const auto& gather : gathers_) {
    if (gather != nullptr) return gather;
  }
  return nullptr;
}

bool MetadataScout::add(Gather gather) {
  const std::scoped_lock lock(mutex_);
  for (auto& place : gathers_) {
    if (place != nullptr) continue;
    place = std::move(gather);
    return true;
  }
  return false;
}

void MetadataScout::remove(const cache::StatGather* gather) {
  const std::scoped_lock lock(mutex_);
  for (auto& place : gathers_) {
    if (place.get() == gather) place.reset();
  }
}

void MetadataScout::work_on(const Gather& gather) {
  if (gather == nullptr) return;
  const base::UniqueFd directory = gather->open();
  while (!is_stopping() && gather->step(directory.get())) {
  }
  // All stats have been requested; other threads might still be waiting for theirs.
  remove(gather.get());
}

MetadataScout::Gather MetadataScout::begin(const std::string& directory, std::string_view asked) {
  Gather gather = cache::StatGather::begin(cache_.metadata(), directory, asked);
  if (gather != nullptr && add(gather)) news_.notify();
  return gather;
}

// Returns the paths of the directories that the program will probably reach after this one, in the
// order that order_of(parent) has noted.
template <typename Wanted>
std::vector<std::string> MetadataScout::after(const std::string& directory, Wanted&& order_of) {
  const std::size_t slash = directory.rfind('/');
  if (slash == std::string::npos || slash == 0) return {};
  const std::string parent = directory.substr(0, slash);
  const cache::Pin listing = cache_.metadata().listing_of(parent, parent.c_str());
  const auto data = listing ? cache::DirectoryData::of(*listing) : std::nullopt;
  if (!data) return {};
  std::vector<std::string> paths;
  {
    const std::scoped_lock lock(mutex_);
    paths = order_of(parent).after(parent, std::string_view(directory).substr(slash + 1), *data);
  }
  for (std::string& path : paths) path.insert(0, parent + "/");
  return paths;
}

// Gathers stats in the directories that follow, because the program has reached this one.
void MetadataScout::follow(const std::string& directory) {
  for (const std::string& path :
       after(directory, [this](const std::string&) -> auto& { return next_; })) {
    if (is_stopping()) return;
    work_on(begin(path, {}));
  }
}

// Submits each directory as a separate request, so that as many threads as possible take part.
void MetadataScout::list_next(const std::string& directory) {
  const auto order_of = [this](const std::string& parent) -> auto& {
    return next_lists_[base::hash_path(parent) % k_parents];
  };
  for (const std::string& path : after(directory, order_of)) {
    if (!submit(Wish::list, path, {})) cache_.metadata().list_ahead(path, path.c_str());
  }
}

// Takes part in a gather that is under way, or handles a wish. Returns false if there is neither.
bool MetadataScout::help() {
  if (const Gather gather = gather_under_way(); gather != nullptr) {
    work_on(gather);
    return true;
  }
  using Free = decltype([](Place* place) { place->put_back(ClaimedRow::Is::free); });
  const std::unique_ptr<Place, Free> wish(claim_any(wishes_, ClaimedRow::Is::filled));
  if (wish == nullptr) return false;
  const std::string directory(wish->path, wish->length);
  switch (wish->wish) {
    case Wish::list: cache_.metadata().list_ahead(directory, directory.c_str()); break;
    case Wish::next: list_next(directory); break;
    case Wish::gather: work_on(begin(directory, {wish->name, wish->name_length})); break;
    case Wish::follow: follow(directory); break;
  }
  return true;
}

void MetadataScout::work(unsigned) {
  while (!is_stopping()) {
    const std::uint32_t seen = news_.now();
    bool has_helped = false;
    try {
      has_helped = help();
    } catch (const std::bad_alloc&) {
      // Does nothing: the program will request the metadata itself.
    }
    if (!has_helped) news_.wait(seen);
  }
}

bool MetadataScout::submit(Wish wish, std::string_view directory, std::string_view asked) {
  if (directory.size() >= PATH_MAX || asked.size() > NAME_MAX) return false;
  // Includes the wish, because a directory may be gathered and followed at the same time.
  const std::uint64_t hash = base::hash_path(directory) + static_cast<std::uint64_t>(wish);
  for (const Place& place : wishes_) {
    if (place.state() != ClaimedRow::Is::free && place.hash.load(std::memory_order_relaxed) == hash)
      return true;
  }
  Place* const place = claim_any(wishes_, ClaimedRow::Is::free);
  if (place == nullptr) return false;
  place->hash.store(hash, std::memory_order_relaxed);
  place->wish = wish;
  place->length = directory.size();
  place->name_length = asked.size();
  std::memcpy(place->path, directory.data(), directory.size());
  std::memcpy(place->name, asked.data(), asked.size());
  place->put_back(ClaimedRow::Is::filled);
  news_.notify();
  return true;
}

MetadataScout* MetadataScout::start(cache::FileCache& cache) {
  // A sandbox might kill the process for a new thread. A host with ThreadSanitizer ends if a forked
  // child starts a thread. LeakSanitizer reports threads that it cannot stop.
  if (base::may_be_sandboxed() || &__tsan_init != nullptr || &__lsan_do_leak_check != nullptr)
    return nullptr;
  return ThreadCrew::start<MetadataScout>(k_scout_threads, cache);
}

}  // namespace cube::prefetch
