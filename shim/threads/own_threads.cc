#include "shim/threads/own_threads.h"

#include <pthread.h>

#include <bit>
#include <new>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/process/signal_frame.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/event_count.h"
#include "prefetch/work/cluster_thread.h"
#include "prefetch/work/disk_flusher.h"
#include "prefetch/work/sidecar.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim::own_threads {

constinit std::atomic<State> g_state{State::none};

namespace {

constinit prefetch::Sidecar* g_sidecar = nullptr;

// The number of threads of the program that are starting threads of this library.
constinit std::atomic<int> g_starting{0};
constinit prefetch::EventCount g_started;
constinit thread_local bool t_is_starting [[gnu::tls_model("initial-exec")]] = false;

// The scope of a start. The scope begins before the check whether a start is allowed, and ends
// after the started object is stored. end() first forbids new starts and then waits for the current
// starts. Signals are blocked in the scope.
class Starting {
 public:
  Starting() : is_outermost_(!std::exchange(t_is_starting, true)) {
    if (is_outermost_) g_starting.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Starting() {
    if (!is_outermost_) return;
    t_is_starting = false;
    g_starting.fetch_sub(1, std::memory_order_seq_cst);
    g_started.notify();
  }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

  static void wait_for_others() {
    constexpr std::uint64_t k_patience_ns = 10'000'000'000;
    const int own = t_is_starting ? 1 : 0;
    g_started.wait_until([own] { return g_starting.load(std::memory_order_seq_cst) <= own; },
                         k_patience_ns);
  }
  // Call this in the child of a fork, where the other threads do not exist.
  static void forget_others() {
    g_starting.store(t_is_starting ? 1 : 0, std::memory_order_relaxed);
  }

 private:
  const BlockSignals block_;
  bool is_outermost_;
};

// The number of threads of the program that are in end_sidecar().
constinit std::atomic<int> g_ending{0};
constinit prefetch::EventCount g_ended;
constinit thread_local bool t_is_ending [[gnu::tls_model("initial-exec")]] = false;

// A crew of threads that starts at its first use.
template <typename Crew>
class OnDemand {
 public:
  // Returns null if there is no crew, or while it is being started or ended.
  Crew* get() const { return crew_.load(std::memory_order_acquire); }
  // Returns the crew, or null if there is none. Starts the crew at most once, by start().
  // `may_be_tried` returns false if it is too early for a start.
  template <typename MayBeTried, typename Start>
  Crew* get_or_start(MayBeTried may_be_tried, Start start) {
    if (Crew* const crew = get(); crew != nullptr) return crew;
    if (is_tried_.load(std::memory_order_relaxed) || !process::config().prefetch ||
        base::may_be_in_handler())
      return nullptr;
    const Starting starting;
    if (g_state.load(std::memory_order_seq_cst) == State::over || !may_be_tried() ||
        is_tried_.exchange(true, std::memory_order_seq_cst))
      return nullptr;
    const KeepErrno keep;
    Crew* const crew = start();
    crew_.store(crew, std::memory_order_release);
    return crew;
  }
  // Returns true if a start was tried already.
  bool forbid() { return is_tried_.exchange(true, std::memory_order_seq_cst); }
  void allow() { is_tried_.store(false, std::memory_order_release); }
  void end() {
    constexpr unsigned k_patience_ms = 15;
    Crew* const crew = take();
    if (crew == nullptr) return;
    const KeepErrno keep;
    crew->stop(k_patience_ms);
  }
  Crew* take() { return crew_.exchange(nullptr, std::memory_order_acq_rel); }

 private:
  std::atomic<Crew*> crew_{nullptr};
  std::atomic<bool> is_tried_{false};
};

constinit OnDemand<prefetch::BlockReader> g_reader;
constinit OnDemand<prefetch::MetadataScout> g_scout;

}  // namespace

// Returns null if another process or no process shows the job's progress. The object is never
// freed.
static cache::Progress* progress_to_show() {
  static constinit cache::Progress* progress = nullptr;
  const std::uint64_t seconds = process::config().progress;
  if (seconds == 0 || !process::g_speaks.load(std::memory_order_relaxed) ||
      !base::is_stderr_a_terminal())
    return nullptr;
  if (progress == nullptr)
    progress = new (std::nothrow) cache::Progress(seconds * base::k_ns_per_s);
  return progress;
}

static bool start_threads() {
  const Starting starting;
  auto none = State::none;
  if (!g_state.compare_exchange_strong(none, State::busy, std::memory_order_seq_cst))
    return none != State::over;
  const KeepErrno keep;
  cache::FileCache* const cache = attachment::cache();
  prefetch::Sidecar* const sidecar =
      cache != nullptr ? prefetch::Sidecar::start(*cache, process::config(), progress_to_show())
                       : nullptr;
  g_sidecar = sidecar;
  // If attaching failed, this process does not try again.
  auto busy = State::busy;
  const State next = sidecar != nullptr ? State::running : State::over;
  if (!g_state.compare_exchange_strong(busy, next, std::memory_order_acq_rel) &&
      sidecar != nullptr) {
    std::exchange(g_sidecar, nullptr)->stop();
    return false;
  }
  return sidecar != nullptr;
}

bool start() {
  if (g_state.load(std::memory_order_acquire) == State::over) return false;
  const Starting starting;
  const KeepErrno keep;
  cache::FileCache* const cache = attachment::cache();
  if (cache != nullptr && process::config().prefetch) cache->ahead().want();
  return start_threads();
}

namespace {

// The state of the cluster's thread: not in use, allowed to start, or not allowed to start for now.
enum class Cluster : int { unused, allowed, held };
constinit std::atomic<Cluster> g_cluster{Cluster::unused};

bool may_start_cluster() {
  return g_state.load(std::memory_order_seq_cst) != State::over &&
         g_cluster.load(std::memory_order_seq_cst) == Cluster::allowed;
}

// A miss calls this in the middle of a fetch.
void start_cluster(cache::ClusterClient& client, cache::OfferSource& source) {
  // A try counts only if the thread is allowed to start. Otherwise, earlier tries would delay the
  // first allowed try.
  if (!may_start_cluster()) return;
  // may_be_in_handler() is expensive, so only some of the tries call it, as in start_if_due. This
  // check must not run with all signals blocked, because stale words on the stack could then look
  // like the frame of a handler. So the check precedes the Starting object, which blocks all
  // signals.
  static constinit std::atomic<std::uint32_t> tries{0};
  const std::uint32_t n = tries.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((!std::has_single_bit(n) && n % 1024 != 0) || base::may_be_in_handler()) return;
  const Starting starting;
  if (!may_start_cluster()) return;
  const KeepErrno keep;
  prefetch::start_cluster_thread(client, source);
  tries.store(0, std::memory_order_relaxed);
}

// Forbids a start of the cluster's thread. Returns false if the thread is not in use, or if another
// caller has already forbidden the start.
bool hold_cluster() {
  auto allowed = Cluster::allowed;
  return g_cluster.compare_exchange_strong(allowed, Cluster::held, std::memory_order_seq_cst);
}

// Ends the cluster's thread. Returns true if the thread existed.
bool end_cluster() {
  constexpr std::uint64_t k_patience_ns = 100'000'000;
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr || !cache->has_cluster_thread()) return false;
  const KeepErrno keep;
  cache->stop_cluster(k_patience_ns);
  return true;
}

constexpr unsigned k_patience_ms = 500;

// Ends the sidecar and sets the state to `next`. Returns false if there was no sidecar. If another
// thread is ending the sidecar, waits for that thread, but not for long. Otherwise, the caller
// could end the process, and the sidecar's socket would be left behind.
bool end_sidecar(State next) {
  // False in a signal handler that has interrupted this thread's own end_sidecar().
  const bool is_outermost = !std::exchange(t_is_ending, true);
  if (is_outermost) g_ending.fetch_add(1, std::memory_order_seq_cst);
  auto running = State::running;
  const bool is_ours = g_state.compare_exchange_strong(running, next, std::memory_order_seq_cst);
  if (is_ours) {
    const KeepErrno keep;
    std::exchange(g_sidecar, nullptr)->stop();
  }
  if (!is_outermost) return is_ours;
  t_is_ending = false;
  g_ending.fetch_sub(1, std::memory_order_seq_cst);
  g_ended.notify();
  if (!is_ours)
    g_ended.wait_until([] { return g_ending.load(std::memory_order_seq_cst) == 0; },
                       k_patience_ms * base::k_ns_per_ms);
  return is_ours;
}

// Ends all threads and sets the state to `next`. Returns true if there were any threads.
bool end(State next) {
  // A thread starts only if the state is `none`.
  auto none = State::none;
  g_state.compare_exchange_strong(none, next, std::memory_order_seq_cst);
  const bool had_scout = g_scout.forbid(), had_reader = g_reader.forbid();
  const bool holds_cluster = hold_cluster();
  Starting::wait_for_others();
  g_reader.end();
  g_scout.end();
  const bool had_others = (holds_cluster && end_cluster()) || had_reader || had_scout;
  return end_sidecar(next) || had_others;
}

void allow_others() {
  g_reader.allow();
  g_scout.allow();
  allow_cluster();
}

}  // namespace

bool pause(Hanging hanging) {
  if (!end(State::busy)) return false;
  const bool are_gone = prefetch::wait_for_background_threads(k_patience_ms);
  if (!are_gone) base::log(base::LogLevel::info, "a prefetch hangs at the origin");
  if (!are_gone && hanging == Hanging::is_waited_for) {
    while (!prefetch::wait_for_background_threads(k_patience_ms)) {
    }
  }
  return true;
}

void resume() {
  auto busy = State::busy;
  if (!g_state.compare_exchange_strong(busy, State::none, std::memory_order_acq_rel)) return;
  allow_others();
}

void allow_cluster() {
  if (process::config().cluster.texts.empty()) return;
  cache::g_start_cluster_thread.store(start_cluster, std::memory_order_release);
  g_cluster.store(Cluster::allowed, std::memory_order_release);
}

// Not inlined, to keep it off the path of a hit.
[[gnu::noinline, gnu::cold]] static void start_if_due(cache::FileCache& cache) {
  // Starts no thread in a signal handler, which may have interrupted malloc. Later opens try again,
  // but not every open does, because the check is expensive.
  static constinit std::atomic<std::uint32_t> tries{0};
  const std::uint32_t n = tries.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool is_due = std::has_single_bit(n) || n % 1024 == 0;
  if (!is_due || base::may_be_in_handler()) return;
  const cache::FetchAhead& ahead = cache.ahead();
  // A thread that is only needed to keep room free for other users does not prefetch until a
  // process wants prefetching.
  const bool is_for_room = process::config().prefetch && ahead.wants_thread() &&
                           !ahead.is_wanted() && !process::has_list();
  is_for_room ? start_threads() : start();
}

void offer_slow(cache::FileCache& cache) {
  const bool wants_thread =
      process::config().prefetch && (cache.ahead().wants_thread() || process::has_list());
  // One process of the node writes to the disk. Until this process ends, all others need no thread
  // for the disk.
  if (wants_thread || prefetch::DiskFlusher::is_wanted(cache)) start_if_due(cache);
}

// Returns an fd of the program that refers to the open file, or -1.
static int fd_of(const cache::LargeFile& file) {
  for (int fd = 0, end = g_fds.end(); fd < end; ++fd) {
    if (g_fds.kind(fd) != RowKind::large) continue;
    const OpenFileRef open = g_fds.acquire_kind(fd, RowKind::large);
    if (open && open->large == &file) return fd;
  }
  return -1;
}

void offer_to_read_ahead(cache::FileCache& cache) {
  g_reader.get_or_start(prefetch::BlockReader::may_be_tried,
                        [&] { return prefetch::BlockReader::start(cache, fd_of); });
}

prefetch::BlockReader* reader() { return g_reader.get(); }

void wish_for(cache::FileCache& cache, Wish wish, std::string_view directory,
              std::string_view asked) {
  auto* const scout = g_scout.get_or_start([] { return true; },
                                           [&] { return prefetch::MetadataScout::start(cache); });
  if (scout != nullptr) scout->submit(wish, directory, asked);
}

void gather_metadata_near(cache::FileCache& cache, std::string_view key) {
  const std::size_t slash = key.rfind('/');
  wish_for(cache, Wish::gather, key.substr(0, slash), key.substr(slash + 1));
}

void follow_metadata(std::string_view key) {
  if (auto* const scout = g_scout.get(); scout != nullptr)
    scout->submit(Wish::follow, key.substr(0, key.rfind('/')), {});
}

void end_for_good(Hanging hanging) {
  bool were_any = false;
  do {
    were_any |= end(State::over);
    // If another thread has paused the threads, its resume() must not start them again.
    auto busy = State::busy;
    g_state.compare_exchange_strong(busy, State::over, std::memory_order_acq_rel);
  } while (g_state.load(std::memory_order_acquire) != State::over);
  if (were_any && hanging == Hanging::is_waited_for)
    prefetch::wait_for_background_threads(k_patience_ms);
}

// The destructor of thread-specific data runs when the thread ends without ending the process: at
// pthread_exit, thrd_exit and cancellation, and when a thread that has forked returns.
void end_with_this_thread() {
  static const std::pair<pthread_key_t, bool> key = [] {
    pthread_key_t made{};
    const bool is_made = pthread_key_create(&made, [](void*) { end_for_good(); }) == 0;
    return std::pair(made, is_made);
  }();
  if (key.second) pthread_setspecific(key.first, &key);
}

void become_child() {
  end_with_this_thread();
  g_sidecar = nullptr;
  g_ending.store(t_is_ending ? 1 : 0, std::memory_order_relaxed);
  if (auto* const reader = g_reader.take(); reader != nullptr) reader->forget();
  g_scout.take();
  // Also forget the users of files, because threads of the parent may have been users.
  cache::LargeFile::forget_users();
  prefetch::forget_background_threads();
  Starting::forget_others();
  if (g_state.load(std::memory_order_relaxed) == State::over) return;
  g_state.store(State::none, std::memory_order_relaxed);
  allow_others();
}

}  // namespace cube::shim::own_threads
