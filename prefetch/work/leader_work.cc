#include "prefetch/work/leader_work.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/hash.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_tick_ns = 10 * base::k_ns_per_ms,
                        k_idle_tick_ns = 250 * base::k_ns_per_ms,
                        k_blocked_tick_ns = 50 * base::k_ns_per_ms;
constexpr std::uint64_t k_least_rest_ns = 1000 * base::k_ns_per_ms,
                        k_rest = 10;  // pause after a round / time of the round
constexpr std::uint64_t k_starved_after_ns = 1000 * base::k_ns_per_ms;

// JobRow::listed: hash of the list:16 | number of entries:48.
constexpr std::uint64_t k_most_listed = (1ULL << 48) - 1;

std::uint64_t mark_of(const std::string& list) { return base::hash_path(list) & ~k_most_listed; }

}  // namespace

// The number of fds of the process is limited. An open of a file in flight needs two: one for the
// path, and one for the file itself. The socket, the lists, and the rings need a few more.
unsigned LeaderWork::most_in_flight(unsigned wanted) {
  constexpr std::uint64_t k_others = 12;
  struct ::rlimit limit {};
  if (base::sys::failed(base::sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, base::sys::arg(&limit))))
    return wanted;
  const std::uint64_t left = limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, k_others);
  return static_cast<unsigned>(
      std::min<std::uint64_t>(wanted, std::max<std::uint64_t>(left / 2, 1)));
}

void LeaderWork::open_list() {
  if (config_.prefetch_list.empty()) return;
  const std::uint64_t listed = cache_.ahead().listed_of_job().load(std::memory_order_relaxed);
  std::uint64_t from =
      (listed & ~k_most_listed) == mark_of(config_.prefetch_list) ? listed & k_most_listed : 0;
  if (from == k_most_listed) from = ListSource::k_all;
  // Repeats the list if the data set did not fit completely, because its files will be needed
  // again.
  const auto repeats = [](void* of) {
    auto& ahead = *static_cast<cache::FetchAhead*>(of);
    return ahead.is_full() || ahead.ring().is_in_use();
  };
  std::string why;
  auto list = ListSource::open({config_.prefetch_list, config_.prefixes, false, {}, origins_.get()},
                               from, repeats, &cache_.ahead(), why);
  if (list == nullptr) base::log(base::LogLevel::warn, "CUBESHIM_PREFETCH_LIST: {}", why);
  plan_.set_list(std::move(list));
}

void LeaderWork::listen() {
  AnnouncementsOptions options{
      .socket = socket_path(), .prefixes = config_.prefixes, .argument = this};
  options.arrived = [](void* lead) { static_cast<LeaderWork*>(lead)->events_.notify(); };
  // The listening thread sends the heartbeat, because it never waits for the origin; this thread
  // can wait for a list. So a leader's heartbeat lasts as long as its process runs.
  options.leads = [](void* lead) { return static_cast<LeaderWork*>(lead)->claim_.beat(); };
  std::string why;
  auto announcements = Announcements::start(std::move(options), why);
  // Does not warn if another process has taken the lead, and the announcements with it.
  if (announcements == nullptr)
    base::log(claim_.beat() ? base::LogLevel::warn : base::LogLevel::debug, "{}", why);
  const std::lock_guard lock(socket_mutex_);
  plan_.set_announcements(std::move(announcements));
}

void LeaderWork::remove_socket() {
  const std::unique_lock lock(socket_mutex_, std::try_to_lock);
  if (lock && plan_.announcements() != nullptr) plan_.announcements()->stop_listening();
}

void LeaderWork::lose() {
  const std::lock_guard lock(socket_mutex_);
  if (plan_.announcements() != nullptr) plan_.announcements()->leave_name();
  plan_.set_announcements(nullptr);
}

void LeaderWork::end(unsigned patience_ms) {
  {
    // Comes first, because the stopping thread does not wait for the rest. The socket is found by
    // its name, which also wakes the listening thread.
    const std::lock_guard lock(socket_mutex_);
    plan_.set_announcements(nullptr);
  }
  prefetcher_->stop(patience_ms);
  cache_.ahead().end_lead();
  // Reports how far the list has got.
  plan_.refused(prefetcher_->take_refused());
  if (ListSource* const list = plan_.list(); list != nullptr) list->log();
}

// Makes the ring. This is delayed until there is something to prefetch, because the ring's segments
// cannot hold records that stay.
void LeaderWork::make_ring() {
  if (std::exchange(has_ring_, true)) return;
  cache_.ahead().make_ring(config_.ring);
  cache_.ahead().prepare_ring();
  if (cache_.ahead().is_full() && cache_.ahead().ring().came_too_late())
    base::log(base::LogLevel::info,
              "files that are not in memory are not prefetched: the region was full before, and "
              "all of it is mapped or in use; "
              "`cubeshim clear` makes room");
}

bool LeaderWork::begin() {
  Prefetcher::Options options;
  options.engine = config_.io_engine;
  options.depth = most_in_flight(config_.prefetch_depth);
  options.use_ring = true;
  options.prefixes = config_.prefixes;
  options.progress = &events_;
  std::string why;
  prefetcher_ = Prefetcher::make(cache_, options, why);
  if (prefetcher_ == nullptr) {
    base::log(base::LogLevel::warn, "nothing is prefetched: {}", why);
    return false;
  }
  listen();
  return true;
}

void LeaderWork::open() {
  if (cache_.ahead().origins() != nullptr) origins_ = cache_.ahead().origins()->reopened();
  plan_.use_origins(origins_.get());
  cache_.ahead().begin_lead();
  open_list();
}

bool LeaderWork::wants_more_of_next() {
  const auto reader = plan_.next_reader();
  return reader && prefetcher_->wants_more_of(*reader);
}

// Returns false if the plan has no more files for now.
bool LeaderWork::feed() {
  // Bounded, because each iteration has other work to do.
  for (int i = 0; i < 1024; ++i) {
    if (!has_next_) {
      if (!prefetcher_->wants_more() && !wants_more_of_next()) return true;
      if (plan_.next(next_) != PathSource::Next::file) return false;
      has_next_ = true;
      make_ring();
    }
    if (!prefetcher_->offer(next_)) return true;
    has_next_ = false;
  }
  return true;
}

void LeaderWork::adapt_depth(std::uint64_t now) {
  const std::vector<cache::Demand> jobs = cache_.ahead().demand_of_jobs();
  const PrefetchCounts counts = prefetcher_->counts();
  const Prefetcher::Took took = prefetcher_->take_times();
  Depth::Seen seen{.now_ns = now,
                   .in_flight = prefetcher_->in_flight(),
                   .jobs = jobs,
                   .overtaken = counts.demanded + counts.cached,
                   .fetches = took.fetches,
                   .ns = took.ns};
  if (plan_.list() != nullptr) seen.planned_job = cache_.ahead().own_job();
  depth_.tick(seen);
  prefetcher_->set_depth(depth_.depth());
  cache_.ahead().note_depth(depth_.depth());
}

void LeaderWork::free_ring(std::uint64_t now) {
  const PrefetchCounts counts = prefetcher_->counts();
  const RingWatch::Seen seen{.now_ns = now,
                             .is_blocked = prefetcher_->is_blocked(),
                             .fetched = counts.fetched,
                             .overtaken = counts.demanded,
                             .demanded = depth_.demand().fetches};
  RingWatch& watch = prefetcher_->ring_watch();
  watch.look(seen);
  if (watch.is_too_small(seen) && cache_.ahead().ring().widen())
    base::log(base::LogLevel::debug,
              "prefetch: the ring is too small for its readers and gets one more segment");
  if (seen.is_blocked) {
    const bool is_starved = watch.stuck_ns() >= k_starved_after_ns && prefetcher_->take_starved();
    cache_.stats().count(base::Counter::prefetch_wasted, watch.give_up(plan_, is_starved));
  }
}

void LeaderWork::note_listed() {
  ListSource* const list = plan_.list();
  if (list == nullptr) return;
  // The next leader gets the first file that is not fetched yet and all later files, because
  // fetches end in any order.
  std::uint64_t unended =
      prefetcher_->first_unended(ListSource::k_reader).value_or(ListSource::k_all);
  if (has_next_ && next_.reader == ListSource::k_reader)
    unended = std::min(unended, next_.sequence);
  // If a stop has just dropped files, the earlier note stays valid for the next leader.
  if (prefetcher_->is_stopped()) return;
  const std::uint64_t listed =
      mark_of(config_.prefetch_list) | std::min(list->dealt_with(unended), k_most_listed);
  cache_.ahead().listed_of_job().store(listed, std::memory_order_relaxed);
}

void LeaderWork::end_round(std::uint64_t now) {
  if (now < next_round_ns_ || !plan_.all_is_known()) return;
  // If a round had nothing to fetch, the next round begins after a pause.
  const std::uint64_t fetched = prefetcher_->counts().fetched;
  if (fetched == fetched_before_)
    next_round_ns_ = now + std::max(k_least_rest_ns, k_rest * (now - round_began_ns_));
  fetched_before_ = fetched;
  round_began_ns_ = now;
}

std::uint64_t LeaderWork::turn() {
  const std::uint64_t now = base::monotonic_ns();
  plan_.refused(prefetcher_->take_refused());
  plan_.settle(prefetcher_->take_settled());
  const bool has_more = feed();
  note_listed();
  const bool is_idle = !has_more && prefetcher_->is_idle();
  if (is_idle) {
    plan_.refused(prefetcher_->take_refused());
    end_round(now);
  }
  // Comes after feed(), so that the first files begin with the whole depth.
  if (now >= next_look_ns_) {
    next_look_ns_ = now + k_tick_ns;
    adapt_depth(now);
    free_ring(now);
  }
  prefetcher_->look_for_hangs();
  prefetcher_->pump();
  if (!is_idle) prepare_room();
  return is_idle && !plan_.is_following_reads() ? k_idle_tick_ns : k_tick_ns;
}

// Prepares segments. No program waits for this here, unlike in a fetch that needs the next segment.
void LeaderWork::prepare_room() {
  constexpr int k_most = 2;
  // Each fetching process fills its own segment. The prefetcher alone fills several segments per
  // iteration.
  constexpr std::uint32_t k_ahead = 3;
  for (int i = 0; i < k_most && cache_.ahead().prepare_room(k_ahead); ++i) {
  }
}

void LeaderWork::wait(std::uint32_t seen, std::uint64_t at_most_ns) {
  const bool is_blocked = prefetcher_->is_blocked() && cache_.ahead().ring().is_made();
  if (is_blocked && cache_.ahead().ring().wait_for_room(k_blocked_tick_ns)) return;
  // If the ring has room after all, this room is promised to fetches in flight, or there is no
  // memory for it.
  events_.wait(seen, is_blocked ? k_blocked_tick_ns : at_most_ns);
}

}  // namespace cube::prefetch
