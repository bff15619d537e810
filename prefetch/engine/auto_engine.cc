#include "prefetch/engine/auto_engine.h"

#include <algorithm>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/log.h"

namespace cube::prefetch {

AutoEngine::AutoEngine(unsigned depth, FetchClient& client, std::uint64_t (*now_ns)())
    : client_(client), now_ns_(now_ns), depth_(std::clamp(depth, 1U, k_most_depth)) {}

bool AutoEngine::take(std::unique_ptr<IoEngine> threads, std::unique_ptr<IoEngine> uring) {
  engines_[0] = std::move(threads);
  engines_[1] = std::move(uring);
  return engines_[0] != nullptr && engines_[1] != nullptr;
}

const char* AutoEngine::name_for(std::uint32_t origin) const {
  switch (origins_[place_of(origin)].choice.load(std::memory_order_acquire)) {
    case Choice::threads: return engines_[static_cast<int>(Side::threads)]->name();
    case Choice::uring: return engines_[static_cast<int>(Side::uring)]->name();
    case Choice::open: break;
  }
  return name();
}

unsigned AutoEngine::wanted_size() const { return std::clamp(4 * depth_, 64U, 256U); }

void AutoEngine::begin_batch(Origin& origin) {
  const unsigned wanted = wanted_size();
  // Both batches of a pair have the same size and similar depths.
  const bool is_near = 4 * wanted >= 3 * origin.size && 4 * wanted <= 5 * origin.size;
  if (!is_near) origin.trial.drop_pair();
  if (origin.trial.is_between_pairs()) origin.size = wanted;
  origin.began_ns = origin.last_end_ns = now_ns_();
  origin.ended = 0;
  origin.is_void = false;
}

bool AutoEngine::take_up(Origin& origin, Fetch& fetch) {
  if (origin.submitted == 0) begin_batch(origin);
  if (origin.submitted < origin.size) {
    ++origin.submitted;
    return true;
  }
  fetch.next = nullptr;
  *(origin.first == nullptr ? &origin.first : &origin.last->next) = &fetch;
  origin.last = &fetch;
  return false;
}

// Called on the submitter's thread, some time after the decision, because an engine's thread has no
// stderr.
void AutoEngine::say(const Origin& origin) const {
  const EngineTrial& trial = origin.trial;
  base::log(
      base::LogLevel::info,
      "prefetch: origin {}: io_uring was faster in {} of {} trials ({:.2f} times); {} from now on",
      &origin - origins_.data(), trial.wins(), trial.wins() + trial.losses(), trial.ratio(),
      trial.side() == Side::uring ? "io_uring" : "threads");
}

void AutoEngine::submit(Fetch& fetch) {
  if (!is_owner()) return client_.ended(fetch, {});
  const std::size_t place = place_of(fetch.origin);
  Origin& origin = origins_[place];
  Side side = Side::threads;
  // Pairs with the release in batch_is_over.
  const Choice choice = origin.choice.load(std::memory_order_acquire);
  unended_.fetch_add(1, std::memory_order_relaxed);
  if (choice != Choice::open) {
    if (!is_told_[place].exchange(true, std::memory_order_relaxed)) say(origin);
    side = choice == Choice::uring ? Side::uring : Side::threads;
  } else {
    const std::lock_guard lock(mutex_);
    // Submits the fetch even after a stop: a stopped engine still ends each fetch.
    if (!is_stopped_ && !origin.trial.is_decided() && !take_up(origin, fetch)) return;
    side = origin.trial.side();
  }
  engines_[static_cast<int>(side)]->submit(fetch);
}

Fetch* AutoEngine::batch_is_over(Origin& origin) {
  if (!origin.is_void) {
    origin.trial.batch_took(now_ns_() - origin.began_ns);
  } else if (++origin.voids == k_most_voids) {
    origin.trial.give_up();
  }
  if (origin.trial.is_decided()) {
    origin.choice.store(origin.trial.side() == Side::uring ? Choice::uring : Choice::threads,
                        std::memory_order_release);
    return std::exchange(origin.first, nullptr);
  }
  // The next batch begins with the fetches that were held back.
  origin.submitted = 0;
  if (origin.first == nullptr) return nullptr;
  begin_batch(origin);
  Fetch* const chain = origin.first;
  Fetch* last = nullptr;
  for (; origin.first != nullptr && origin.submitted < origin.size; ++origin.submitted) {
    last = std::exchange(origin.first, origin.first->next);
  }
  last->next = nullptr;
  return chain;
}

Fetch* AutoEngine::one_of_batch_ended(Origin& origin, bool counts) {
  origin.last_end_ns = now_ns_();
  if (!counts) origin.is_void = true;
  if (++origin.ended != origin.submitted) return nullptr;
  // If the batch is not full, the engine ran out of work.
  if (origin.submitted < origin.size) origin.is_void = true;
  return batch_is_over(origin);
}

void AutoEngine::ended(Fetch& fetch, const FetchResult& result) {
  Origin& origin = origins_[place_of(fetch.origin)];
  client_.ended(fetch, result);
  if (origin.choice.load(std::memory_order_relaxed) == Choice::open) {
    const bool counts = result.ending != Ending::cancelled && result.ending != Ending::abandoned;
    Fetch* chain = nullptr;
    Side side = Side::threads;
    {
      const std::lock_guard lock(mutex_);
      if (!origin.trial.is_decided()) chain = one_of_batch_ended(origin, counts);
      side = origin.trial.side();
    }
    pass_on(side, chain);
  }
  // Pairs with the acquire in drain.
  if (unended_.fetch_sub(1, std::memory_order_release) == 1) all_over_.notify();
}

Fetch* AutoEngine::end_of_hanging_trial(Origin& origin) {
  if (origin.first == nullptr || now_ns_() - origin.last_end_ns < k_patience_ns) return nullptr;
  origin.trial.give_up();
  origin.is_void = true;
  return batch_is_over(origin);
}

void AutoEngine::look_for_hangs() {
  if (!is_owner()) return;
  for (Origin& origin : origins_) {
    if (origin.choice.load(std::memory_order_relaxed) != Choice::open) continue;
    Fetch* chain = nullptr;
    {
      const std::lock_guard lock(mutex_);
      chain = end_of_hanging_trial(origin);
    }
    pass_on(Side::threads, chain);
  }
}

void AutoEngine::pass_on(Side side, Fetch* chain) {
  while (chain != nullptr) {
    Fetch& fetch = *std::exchange(chain, chain->next);
    engines_[static_cast<int>(side)]->submit(fetch);
  }
}

void AutoEngine::set_depth(unsigned depth) {
  if (!is_owner()) return;
  {
    const std::lock_guard lock(mutex_);
    depth_ = std::clamp(depth, 1U, k_most_depth);
  }
  for (const auto& engine : engines_) engine->set_depth(depth);
}

void AutoEngine::end_held() {
  for (Origin& origin : origins_) {
    Fetch* chain = nullptr;
    {
      const std::lock_guard lock(mutex_);
      chain = std::exchange(origin.first, nullptr);
    }
    while (chain != nullptr) {
      client_.ended(*std::exchange(chain, chain->next), {});
      if (unended_.fetch_sub(1, std::memory_order_release) == 1) all_over_.notify();
    }
  }
}

void AutoEngine::cancel_waiting() {
  if (!is_owner()) return;
  end_held();
  for (const auto& engine : engines_) engine->cancel_waiting();
}

void AutoEngine::drain() {
  if (!is_owner()) return;
  all_over_.wait_until([this] { return unended_.load(std::memory_order_acquire) == 0; });
  for (const auto& engine : engines_) engine->drain();
}

unsigned AutoEngine::stop(unsigned patience_ms) {
  if (!is_owner()) return 0;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_stopped_, true)) return 0;
  }
  const std::uint64_t until = base::monotonic_ns() + patience_ms * 1'000'000ULL;
  end_held();
  unsigned abandoned = 0;
  for (const auto& engine : engines_) {
    if (engine == nullptr) continue;
    const std::uint64_t now = base::monotonic_ns();
    abandoned += engine->stop(now < until ? static_cast<unsigned>((until - now) / 1'000'000) : 0);
  }
  return abandoned;
}

}  // namespace cube::prefetch
