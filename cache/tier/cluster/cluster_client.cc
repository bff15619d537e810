#include "cache/tier/cluster/cluster_client.h"

#include "cache/base/clock.h"
#include "cache/base/memory/held.h"
#include "cache/tier/cluster/cluster_worker.h"
#include "cache/tier/cluster/home_server.h"

namespace cube::cache {

namespace sys = base::sys;

constinit std::atomic<StartClusterThread> g_start_cluster_thread{nullptr};

ClusterClient::ClusterClient(ClusterClientOptions options)
    : options_(std::move(options)), states_(new ServerState[options_.servers.size()]) {}

ClusterClient::~ClusterClient() = default;

ClusterClient::Answer::Answer() { base::Held::give_back_left(this); }

void ClusterClient::Answer::note(ClusterRequest& request) {
  request_ = &request;
  is_noted_ = base::Held::note(
      this,
      [](std::uintptr_t what, std::size_t) { release(*reinterpret_cast<ClusterRequest*>(what)); },
      reinterpret_cast<std::uintptr_t>(&request), 0);
}

ClusterRequest* ClusterClient::Answer::let_go() {
  ClusterRequest* const request = std::exchange(request_, nullptr);
  const bool is_ours =
      request != nullptr &&
      (!is_noted_ || base::Held::let_go(this, reinterpret_cast<std::uintptr_t>(request)));
  return is_ours ? request : nullptr;
}

void ClusterClient::Answer::give_back() {
  if (ClusterRequest* const request = let_go(); request != nullptr) release(*request);
}

bool ClusterClient::leave(ClusterRequest& request) {
  std::uint32_t state = request.state.load(std::memory_order_acquire);
  while (state != ClusterRequest::done) {
    if (request.state.compare_exchange_weak(state, ClusterRequest::left, std::memory_order_acq_rel))
      return true;
  }
  return false;
}

void ClusterClient::release(ClusterRequest& request) {
  std::uint32_t state = request.state.load(std::memory_order_acquire);
  while (true) {
    const bool is_ours = state == ClusterRequest::done || state == ClusterRequest::taken;
    const std::uint32_t next = is_ours ? ClusterRequest::free : ClusterRequest::left;
    if (request.state.compare_exchange_weak(state, next, std::memory_order_acq_rel)) return;
  }
}

ClusterRequest* ClusterClient::claim() {
  // Takes the first free row. Each row keeps its buffer, so there are only as many buffers as there
  // were requests at the same time.
  for (ClusterRequest& request : requests_) {
    std::uint32_t free = ClusterRequest::free;
    if (request.state.compare_exchange_strong(free, ClusterRequest::taken,
                                              std::memory_order_acquire))
      return &request;
  }
  return nullptr;
}

void ClusterClient::write(ClusterRequest& request, ClusterRequest::Ask ask,
                          const ClusterKey& key) const {
  request.ask = ask;
  request.key = key;
  request.server = home_of_key(options_.servers, key.hash());
  request.is_ahead = request.was_late = request.is_admitted = false;
  request.outcome = Outcome::late;
  request.size = request.cas = request.sent_ns = 0;
}

bool ClusterClient::queue(ClusterRequest& request) {
  // seq_cst: either this function sees that the client's thread ends, or the thread sees the
  // request (see end_life).
  request.state.store(ClusterRequest::queued, std::memory_order_seq_cst);
  const auto now_is = static_cast<Life>(life_.load(std::memory_order_seq_cst));
  std::uint32_t queued = ClusterRequest::queued;
  const bool has_thread = now_is == Life::starting || now_is == Life::running;
  if (!has_thread && request.state.compare_exchange_strong(queued, ClusterRequest::free,
                                                           std::memory_order_acq_rel))
    return false;
  wake();
  return true;
}

void ClusterClient::finish(ClusterRequest& request, Outcome outcome) {
  request.outcome = outcome;
  const bool is_awaited = request.ask == ClusterRequest::Ask::get;
  std::uint32_t now_is = request.state.load(std::memory_order_acquire);
  while (true) {
    const bool is_left = now_is == ClusterRequest::left || !is_awaited;
    const std::uint32_t next = is_left ? ClusterRequest::free : ClusterRequest::done;
    if (request.state.compare_exchange_weak(now_is, next, std::memory_order_acq_rel)) break;
  }
  sys::futex_wake_all(&request.state);
}

void ClusterClient::end_life(Life next) {
  life_.store(static_cast<std::uint32_t>(Life::ending), std::memory_order_seq_cst);
  for (ClusterRequest& request : requests_) {
    const std::uint32_t state = request.state.load(std::memory_order_seq_cst);
    if (state == ClusterRequest::queued || state == ClusterRequest::sent ||
        state == ClusterRequest::left)
      finish(request, Outcome::skipped);
  }
  life_.store(static_cast<std::uint32_t>(next), std::memory_order_release);
  sys::futex_wake_all(&life_);
}

bool ClusterClient::is_asked(const ClusterKey& key) const {
  const ServerState& state = states_[home_of_key(options_.servers, key.hash())];
  return life() != Life::over && !state.is_left_out.load(std::memory_order_relaxed) &&
         state.breaker.allows_requests(base::monotonic_ns());
}

bool ClusterClient::takes_offers(std::size_t server, std::uint64_t now) const {
  const ServerState& state = states_[server];
  return !state.is_left_out.load(std::memory_order_relaxed) && state.breaker.allows_requests(now) &&
         now >= state.no_offers_until_ns.load(std::memory_order_relaxed);
}

bool ClusterClient::takes_offers() const {
  if (options_.fill_per_second == 0 || life() == Life::over) return false;
  const std::uint64_t now = base::monotonic_ns();
  for (std::size_t i = 0; i < options_.servers.size(); ++i) {
    if (takes_offers(i, now)) return true;
  }
  return false;
}

bool ClusterClient::takes_offer(const ClusterKey& key) const {
  return takes_offers(home_of_key(options_.servers, key.hash()), base::monotonic_ns());
}

void ClusterClient::get(const ClusterKey& key, unsigned lease_seconds, std::uint64_t at_most_ns,
                        Answer& answer, bool is_ahead) {
  answer.give_back();
  answer.outcome_ = Outcome::skipped;
  if (life() == Life::none || !is_asked(key) || is_stopping_.load(std::memory_order_acquire))
    return;
  ClusterRequest* const request = claim();
  if (request == nullptr) return;
  // Notes the row immediately, because a jump before this line would lose the row.
  answer.note(*request);
  constexpr std::uint64_t k_longest_ns = 3600 * std::uint64_t{1'000'000'000};
  const std::uint64_t deadline = base::monotonic_ns() + std::min(at_most_ns, k_longest_ns);
  write(*request, ClusterRequest::Ask::get, key);
  request->is_ahead = is_ahead;
  request->lease_seconds = lease_seconds;
  request->deadline_ns = deadline;
  if (!queue(*request)) {
    answer.let_go();
    return;
  }
  while (true) {
    const std::uint32_t state = request->state.load(std::memory_order_acquire);
    if (state == ClusterRequest::done) {
      answer.outcome_ = request->outcome;
      return;
    }
    const std::uint64_t now = base::monotonic_ns();
    if (now >= deadline) break;
    sys::futex_wait(&request->state, state, deadline - now);
  }
  answer.outcome_ = Outcome::late;
  if (answer.let_go() == nullptr) return;
  if (leave(*request)) return wake();
  // The answer has arrived at the last moment. The asker gets it, because a lease in the answer
  // must not be lost.
  answer.note(*request);
  answer.outcome_ = request->outcome;
}

void ClusterClient::remove(const ClusterKey& key, std::uint64_t cas) {
  if (life() != Life::running || !is_asked(key)) return;
  ClusterRequest* const request = claim();
  if (request == nullptr) return;
  write(*request, ClusterRequest::Ask::remove, key);
  request->cas = cas;
  request->deadline_ns = base::monotonic_ns() + options_.deadline_ns;
  queue(*request);
}

bool ClusterClient::claim_start() {
  auto none = static_cast<std::uint32_t>(Life::none);
  if (!life_.compare_exchange_strong(none, static_cast<std::uint32_t>(Life::starting),
                                     std::memory_order_acq_rel))
    return false;
  // The flag may still be set by a stop() that did not wait until the thread had ended.
  is_stopping_.store(false, std::memory_order_seq_cst);
  return true;
}

void ClusterClient::fail_start(bool for_good) { end_life(for_good ? Life::over : Life::none); }

void ClusterClient::run(OfferSource& source) {
  life_.store(static_cast<std::uint32_t>(Life::running), std::memory_order_release);
  {
    // The destructor runs even after std::bad_alloc.
    struct Leave {
      OfferSource& source;
      ~Leave() { source.leave(); }
    } const leave{source};
    Worker worker(*this, source);
    worker.run();
  }
  // The thread may be started again.
  fail_start(/*for_good=*/false);
}

bool ClusterClient::stop(std::uint64_t at_most_ns) {
  const std::uint64_t until = base::monotonic_ns() + at_most_ns;
  is_stopping_.store(true, std::memory_order_seq_cst);
  wake();
  while (true) {
    const auto now_is = life();
    const std::uint64_t now = base::monotonic_ns();
    if (now_is == Life::none || now_is == Life::over || now >= until) break;
    sys::futex_wait(&life_, static_cast<std::uint32_t>(now_is),
                    std::min<std::uint64_t>(until - now, 10'000'000));
  }
  const bool has_ended = life() == Life::none || life() == Life::over;
  if (has_ended) is_stopping_.store(false, std::memory_order_seq_cst);
  return has_ended;
}

ClusterFigures ClusterClient::figures() const {
  ClusterFigures sum;
  for (std::size_t i = 0; i < options_.servers.size(); ++i) {
    sum.capacity += states_[i].capacity.load(std::memory_order_relaxed);
    sum.used += states_[i].used.load(std::memory_order_relaxed);
    sum.entries += states_[i].entries.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace cube::cache
