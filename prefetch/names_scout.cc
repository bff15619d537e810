#include "prefetch/names_scout.h"

#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/hash.h"
#include "cache/base/log.h"
#include "cache/base/sandbox.h"
#include "cache/names/stat_gather.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/event_count.h"

namespace cube::prefetch {
namespace {

// A stat waits for the origin and takes no time of the processor.
constexpr std::size_t k_scout_threads = 16;
constexpr std::size_t k_wishes = 16, k_gathers = 4;
constexpr std::size_t k_scout_stack = 128 << 10;

}  // namespace

// A directory that waits for a thread, or has one. The path is whose state it is in.
struct NamesScout::Wish {
  enum class State : std::uint32_t { free, being_changed, ready, under_way };
  std::atomic<State> state{State::free};
  std::atomic<std::uint64_t> hash{0};  // of the path, where the state is not free
  std::size_t length = 0, name_length = 0;
  char path[PATH_MAX], name[NAME_MAX];
};

struct NamesScout::State {
  explicit State(cache::FileCache& of) : cache(of) {}

  cache::FileCache& cache;
  Wish wishes[k_wishes];
  std::mutex mutex;  // of the threads alone; guards `gathers`
  std::shared_ptr<cache::StatGather> gathers[k_gathers];
  EventCount news, over;
  std::atomic<bool> is_stopping{false};
  std::atomic<std::size_t> threads{0};

  void run();
  Wish* take_wish();
  std::shared_ptr<cache::StatGather> gather_under_way();
  bool help();
  bool add(std::shared_ptr<cache::StatGather> gather);
  void remove(const cache::StatGather* gather);
};

NamesScout::Wish* NamesScout::State::take_wish() {
  for (Wish& wish : wishes) {
    auto ready = Wish::State::ready;
    if (wish.state.compare_exchange_strong(ready, Wish::State::under_way, std::memory_order_acquire)) return &wish;
  }
  return nullptr;
}

std::shared_ptr<cache::StatGather> NamesScout::State::gather_under_way() {
  const std::scoped_lock lock(mutex);
  for (const auto& gather : gathers) {
    if (gather != nullptr) return gather;
  }
  return nullptr;
}

bool NamesScout::State::add(std::shared_ptr<cache::StatGather> gather) {
  const std::scoped_lock lock(mutex);
  for (auto& place : gathers) {
    if (place != nullptr) continue;
    place = std::move(gather);
    return true;
  }
  return false;
}

void NamesScout::State::remove(const cache::StatGather* gather) {
  const std::scoped_lock lock(mutex);
  for (auto& place : gathers) {
    if (place.get() == gather) place.reset();
  }
}

// A wish whose thread has come to its end, or had no memory.
class NamesScout::WishEnd {
 public:
  explicit WishEnd(Wish* wish) : wish_(wish) {}
  ~WishEnd() {
    if (wish_ != nullptr) wish_->state.store(Wish::State::free, std::memory_order_release);
  }
  WishEnd(const WishEnd&) = delete;
  WishEnd& operator=(const WishEnd&) = delete;

 private:
  Wish* wish_;
};

// Takes part in a gather that is under way, or begins one. False: there is nothing to do.
bool NamesScout::State::help() {
  auto gather = gather_under_way();
  Wish* const wish = gather == nullptr ? take_wish() : nullptr;
  const WishEnd end(wish);
  if (wish != nullptr) {
    gather = cache::StatGather::begin(cache.names(), std::string(wish->path, wish->length), {wish->name, wish->name_length});
    if (gather != nullptr && add(gather)) news.notify();
  }
  if (gather == nullptr) return wish != nullptr;
  const base::UniqueFd directory = gather->open();
  while (!is_stopping.load(std::memory_order_relaxed) && gather->step(directory.get())) {
  }
  // Nothing is left to begin with; others may still wait for what they have begun.
  remove(gather.get());
  return true;
}

void NamesScout::State::run() {
  lower_priority(1);
  while (!is_stopping.load(std::memory_order_acquire)) {
    const std::uint32_t seen = news.now();
    bool has_helped = false;
    try {
      has_helped = help();
    } catch (const std::bad_alloc&) {
      // The program asks for itself.
    }
    if (!has_helped) news.wait(seen);
  }
}

NamesScout* NamesScout::start(cache::FileCache& cache) {
  // It may kill for a new thread.
  if (base::may_be_sandboxed()) return nullptr;
  try {
    auto state = std::make_unique<State>(cache);
    auto scout = std::unique_ptr<NamesScout>(new NamesScout(state.get()));
    const auto body = [](void* of) {
      auto& own = *static_cast<State*>(of);
      // Without a table of its own, the host could close what it reads.
      if (const auto table = take_private_fd_table(); table) {
        own.run();
      } else {
        base::log(base::LogLevel::info, "names are not gathered: close_range(CLOSE_RANGE_UNSHARE): {}",
                  base::text_of_error(table.error().value));
      }
      own.threads.fetch_sub(1, std::memory_order_release);
      own.over.notify();
    };
    for (std::size_t i = 0; i < k_scout_threads; ++i) {
      state->threads.fetch_add(1, std::memory_order_relaxed);
      const int error = start_background_thread(body, state.get(), k_scout_stack);
      if (error == 0) continue;
      base::log(base::LogLevel::info, "names are gathered by {} threads: {}", i, base::text_of_error(error));
      if (state->threads.fetch_sub(1, std::memory_order_relaxed) == 1 && i == 0) return nullptr;
      break;
    }
    static_cast<void>(state.release());
    return scout.release();
  } catch (...) {
    return nullptr;
  }
}

bool NamesScout::submit(std::string_view directory, std::string_view asked) {
  if (directory.size() >= PATH_MAX || asked.size() > NAME_MAX) return false;
  const std::uint64_t hash = base::hash_path(directory);
  for (const Wish& wish : state_->wishes) {
    const bool is_in_use = wish.state.load(std::memory_order_acquire) != Wish::State::free;
    if (is_in_use && wish.hash.load(std::memory_order_relaxed) == hash) return true;
  }
  for (Wish& wish : state_->wishes) {
    auto none = Wish::State::free;
    if (!wish.state.compare_exchange_strong(none, Wish::State::being_changed, std::memory_order_acquire)) continue;
    wish.hash.store(hash, std::memory_order_relaxed);
    wish.length = directory.size();
    wish.name_length = asked.size();
    std::memcpy(wish.path, directory.data(), directory.size());
    std::memcpy(wish.name, asked.data(), asked.size());
    wish.state.store(Wish::State::ready, std::memory_order_release);
    state_->news.notify();
    return true;
  }
  return false;
}

void NamesScout::stop(unsigned patience_ms) {
  State& state = *state_;
  state.is_stopping.store(true, std::memory_order_release);
  state.news.notify();
  state.over.wait_until([&] { return state.threads.load(std::memory_order_acquire) == 0; }, patience_ms * base::k_ns_per_ms);
}

}  // namespace cube::prefetch
