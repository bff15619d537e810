#include "prefetch/work/metadata_scout.h"

#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/hash.h"
#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/base/process/sandbox.h"
#include "cache/base/sanitizers.h"
#include "cache/metadata/next_directories.h"
#include "cache/metadata/stat_gather.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/event_count.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {
namespace {

// A stat waits for the origin and takes no processor time.
constexpr std::size_t k_scout_threads = 16;
constexpr std::size_t k_wishes = 32, k_gathers = 4;
// A walk alternates between directories of several levels.
constexpr std::size_t k_parents = 16;
constexpr std::size_t k_scout_stack = 128 << 10;

}  // namespace

// A directory that waits for a thread or has one. The thread that has changed `state` owns the
// path.
struct MetadataScout::Place {
  enum class State : std::uint32_t { free, being_changed, ready, under_way };
  std::atomic<State> state{State::free};
  std::atomic<std::uint64_t> hash{0};  // of the path and the wish, unless the state is free
  Wish wish = Wish::list;
  std::size_t length = 0, name_length = 0;
  char path[PATH_MAX], name[NAME_MAX];
};

struct MetadataScout::State {
  explicit State(cache::FileCache& of) : cache(of) {}

  cache::FileCache& cache;
  Place wishes[k_wishes];
  base::Mutex mutex;  // for the threads alone; guards the next three
  cache::NextDirectories next;
  std::vector<cache::NextDirectories> next_lists{
      k_parents, cache::NextDirectories(cache::NextDirectories::Comes::to_some)};
  std::shared_ptr<cache::StatGather> gathers[k_gathers];
  EventCount news, over;
  std::atomic<bool> is_stopping{false};
  std::atomic<std::size_t> threads{0};

  void run();
  bool submit(Wish wish, std::string_view directory, std::string_view asked);
  Place* take_wish();
  std::shared_ptr<cache::StatGather> gather_under_way();
  void work_on(const std::shared_ptr<cache::StatGather>& gather);
  std::shared_ptr<cache::StatGather> begin(const std::string& directory, std::string_view asked);
  void follow(const std::string& directory);
  void list_next(const std::string& directory);
  template <typename Wanted>
  std::vector<std::string> after(const std::string& directory, Wanted&& order_of);
  bool help();
  bool add(std::shared_ptr<cache::StatGather> gather);
  void remove(const cache::StatGather* gather);
};

MetadataScout::Place* MetadataScout::State::take_wish() {
  for (Place& wish : wishes) {
    auto ready = Place::State::ready;
    if (wish.state.compare_exchange_strong(ready, Place::State::under_way,
                                           std::memory_order_acquire))
      return &wish;
  }
  return nullptr;
}

std::shared_ptr<cache::StatGather> MetadataScout::State::gather_under_way() {
  const std::scoped_lock lock(mutex);
  for (const auto& gather : gathers) {
    if (gather != nullptr) return gather;
  }
  return nullptr;
}

bool MetadataScout::State::add(std::shared_ptr<cache::StatGather> gather) {
  const std::scoped_lock lock(mutex);
  for (auto& place : gathers) {
    if (place != nullptr) continue;
    place = std::move(gather);
    return true;
  }
  return false;
}

void MetadataScout::State::remove(const cache::StatGather* gather) {
  const std::scoped_lock lock(mutex);
  for (auto& place : gathers) {
    if (place.get() == gather) place.reset();
  }
}

// Frees a wish when its thread is done with it or has run out of memory.
class MetadataScout::PlaceEnd {
 public:
  explicit PlaceEnd(Place* wish) : wish_(wish) {}
  ~PlaceEnd() {
    if (wish_ != nullptr) wish_->state.store(Place::State::free, std::memory_order_release);
  }
  PlaceEnd(const PlaceEnd&) = delete;
  PlaceEnd& operator=(const PlaceEnd&) = delete;

 private:
  Place* wish_;
};

void MetadataScout::State::work_on(const std::shared_ptr<cache::StatGather>& gather) {
  if (gather == nullptr) return;
  const base::UniqueFd directory = gather->open();
  while (!is_stopping.load(std::memory_order_relaxed) && gather->step(directory.get())) {
  }
  // Nothing is left to begin; other threads may still wait for what they have begun.
  remove(gather.get());
}

std::shared_ptr<cache::StatGather> MetadataScout::State::begin(const std::string& directory,
                                                               std::string_view asked) {
  std::shared_ptr<cache::StatGather> gather =
      cache::StatGather::begin(cache.metadata(), directory, asked);
  if (gather != nullptr && add(gather)) news.notify();
  return gather;
}

// The paths of the directories that the program comes to after this one, in the order that
// order_of(parent) has noted.
template <typename Wanted>
std::vector<std::string> MetadataScout::State::after(const std::string& directory,
                                                     Wanted&& order_of) {
  const std::size_t slash = directory.rfind('/');
  if (slash == std::string::npos || slash == 0) return {};
  const std::string parent = directory.substr(0, slash);
  const cache::Pin listing = cache.metadata().listing_of(parent, parent.c_str());
  const auto data = listing ? cache::DirectoryData::of(*listing) : std::nullopt;
  if (!data) return {};
  std::vector<std::string> paths;
  {
    const std::scoped_lock lock(mutex);
    paths = order_of(parent).after(parent, std::string_view(directory).substr(slash + 1), *data);
  }
  for (std::string& path : paths) path.insert(0, parent + "/");
  return paths;
}

// Gathers the directories that come next: the program has come to this one.
void MetadataScout::State::follow(const std::string& directory) {
  for (const std::string& path :
       after(directory, [this](const std::string&) -> auto& { return next; })) {
    if (is_stopping.load(std::memory_order_relaxed)) return;
    work_on(begin(path, {}));
  }
}

// Each directory is a wish of its own, so that as many threads take part.
void MetadataScout::State::list_next(const std::string& directory) {
  const auto order_of = [this](const std::string& parent) -> auto& {
    return next_lists[base::hash_path(parent) % k_parents];
  };
  for (const std::string& path : after(directory, order_of)) {
    if (!submit(Wish::list, path, {})) cache.metadata().list_ahead(path, path.c_str());
  }
}

// Takes part in a gather that is under way, or fulfils a wish. False: there is nothing to do.
bool MetadataScout::State::help() {
  const auto gather = gather_under_way();
  Place* const wish = gather == nullptr ? take_wish() : nullptr;
  if (gather == nullptr && wish == nullptr) return false;
  const PlaceEnd end(wish);
  if (wish == nullptr) {
    work_on(gather);
    return true;
  }
  const std::string directory(wish->path, wish->length);
  switch (wish->wish) {
    case Wish::list: cache.metadata().list_ahead(directory, directory.c_str()); break;
    case Wish::next: list_next(directory); break;
    case Wish::gather: work_on(begin(directory, {wish->name, wish->name_length})); break;
    case Wish::follow: follow(directory); break;
  }
  return true;
}

void MetadataScout::State::run() {
  lower_priority(1);
  while (!is_stopping.load(std::memory_order_acquire)) {
    const std::uint32_t seen = news.now();
    bool has_helped = false;
    try {
      has_helped = help();
    } catch (const std::bad_alloc&) {
      // The program will ask for the metadata itself.
    }
    if (!has_helped) news.wait(seen);
  }
}

bool MetadataScout::State::submit(Wish wish, std::string_view directory, std::string_view asked) {
  if (directory.size() >= PATH_MAX || asked.size() > NAME_MAX) return false;
  // A directory may be gathered and followed at the same time.
  const std::uint64_t hash = base::hash_path(directory) + static_cast<std::uint64_t>(wish);
  for (const Place& place : wishes) {
    const bool is_in_use = place.state.load(std::memory_order_acquire) != Place::State::free;
    if (is_in_use && place.hash.load(std::memory_order_relaxed) == hash) return true;
  }
  for (Place& place : wishes) {
    auto none = Place::State::free;
    if (!place.state.compare_exchange_strong(none, Place::State::being_changed,
                                             std::memory_order_acquire))
      continue;
    place.hash.store(hash, std::memory_order_relaxed);
    place.wish = wish;
    place.length = directory.size();
    place.name_length = asked.size();
    std::memcpy(place.path, directory.data(), directory.size());
    std::memcpy(place.name, asked.data(), asked.size());
    place.state.store(Place::State::ready, std::memory_order_release);
    news.notify();
    return true;
  }
  return false;
}

MetadataScout* MetadataScout::start(cache::FileCache& cache) {
  // A sandbox may kill for a new thread. A host with ThreadSanitizer ends if a forked child starts
  // one, and LeakSanitizer reports threads that it cannot stop.
  if (base::may_be_sandboxed() || &__tsan_init != nullptr || &__lsan_do_leak_check != nullptr)
    return nullptr;
  try {
    auto state = std::make_unique<State>(cache);
    auto scout = std::unique_ptr<MetadataScout>(new MetadataScout(state.get()));
    const auto body = [](void* of) {
      auto& own = *static_cast<State*>(of);
      // Without a private fd table, the host could close what the thread reads.
      if (const auto table = take_private_fd_table(); table) {
        own.run();
      } else {
        base::log(base::LogLevel::info,
                  "names are not gathered: close_range(CLOSE_RANGE_UNSHARE): {}",
                  base::text_of_error(table.error().value));
      }
      own.threads.fetch_sub(1, std::memory_order_release);
      own.over.notify();
    };
    const bool may_change = may_change_traits();
    for (std::size_t i = 0; i < k_scout_threads; ++i) {
      state->threads.fetch_add(1, std::memory_order_relaxed);
      const int error = start_background_thread(body, state.get(), k_scout_stack, may_change);
      if (error == 0) continue;
      base::log(base::LogLevel::info, "names are gathered by {} threads: {}", i,
                base::text_of_error(error));
      if (state->threads.fetch_sub(1, std::memory_order_relaxed) == 1 && i == 0) return nullptr;
      break;
    }
    static_cast<void>(state.release());
    return scout.release();
  } catch (...) {
    return nullptr;
  }
}

bool MetadataScout::submit(Wish wish, std::string_view directory, std::string_view asked) {
  return state_->submit(wish, directory, asked);
}

void MetadataScout::stop(unsigned patience_ms) {
  State& state = *state_;
  state.is_stopping.store(true, std::memory_order_release);
  state.news.notify();
  state.over.wait_until([&] { return state.threads.load(std::memory_order_acquire) == 0; },
                        patience_ms * base::k_ns_per_ms);
}

}  // namespace cube::prefetch
