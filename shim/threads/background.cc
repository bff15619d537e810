#include "shim/threads/background.h"

#include <pthread.h>

#include <bit>
#include <utility>

#include "cache/base/log.h"
#include "cache/base/process/signal_frame.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/event_count.h"
#include "prefetch/work/block_reader.h"
#include "prefetch/work/cluster_thread.h"
#include "prefetch/work/disk_flusher.h"
#include "prefetch/work/metadata_scout.h"
#include "prefetch/work/sidecar.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim::background {

constinit std::atomic<State> g_state{State::none};

namespace {

constinit prefetch::Sidecar* g_sidecar = nullptr;
constinit prefetch::Sidecar* g_former_sidecar = nullptr;

// Threads of the program that are starting some of ours.
constinit std::atomic<int> g_starting{0};
constinit prefetch::EventCount g_started;
constinit thread_local bool t_is_starting [[gnu::tls_model("initial-exec")]] = false;

// Lives from before the check whether a start is allowed until after the store of what was started:
// end() forbids new starts, and then waits for those under way. Signals are blocked meanwhile.
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
  // The child of a fork does not have the other threads.
  static void forget_others() {
    g_starting.store(t_is_starting ? 1 : 0, std::memory_order_relaxed);
  }

 private:
  const BlockSignals block_;
  bool is_outermost_;
};

// The threads that read large files ahead. Null if there are none, or while they are being started
// or ended.
constinit std::atomic<prefetch::BlockReader*> g_block_reader{nullptr};
constinit std::atomic<bool> g_block_reader_is_tried{false};
constinit prefetch::BlockReader* g_former_block_reader = nullptr;

// The threads that gather metadata, likewise.
constinit std::atomic<prefetch::MetadataScout*> g_scout{nullptr};
constinit std::atomic<bool> g_scout_is_tried{false};
constinit prefetch::MetadataScout* g_former_scout = nullptr;

void keep_reachable(prefetch::MetadataScout* scout) {
  scout->former = g_former_scout;
  g_former_scout = scout;
}

void keep_reachable(prefetch::BlockReader* reader) {
  reader->former = g_former_block_reader;
  g_former_block_reader = reader;
}

void end_block_reader() {
  constexpr unsigned k_patience_ms = 15;
  prefetch::BlockReader* const reader = g_block_reader.exchange(nullptr, std::memory_order_acq_rel);
  if (reader == nullptr) return;
  const KeepErrno keep;
  reader->stop(k_patience_ms);
  keep_reachable(reader);
}

void end_scout() {
  constexpr unsigned k_patience_ms = 15;
  prefetch::MetadataScout* const scout = g_scout.exchange(nullptr, std::memory_order_acq_rel);
  if (scout == nullptr) return;
  const KeepErrno keep;
  scout->stop(k_patience_ms);
  keep_reachable(scout);
}

void keep_sidecar_reachable() {
  g_sidecar->former = g_former_sidecar;
  g_former_sidecar = std::exchange(g_sidecar, nullptr);
}

}  // namespace

static bool start_threads() {
  const Starting starting;
  auto none = State::none;
  if (!g_state.compare_exchange_strong(none, State::busy, std::memory_order_seq_cst))
    return none != State::over;
  const KeepErrno keep;
  cache::FileCache* const cache = attachment::cache();
  prefetch::Sidecar* const sidecar =
      cache != nullptr ? prefetch::Sidecar::start(*cache, process::config()) : nullptr;
  g_sidecar = sidecar;
  // An attachment that failed is not tried again.
  auto busy = State::busy;
  const State next = sidecar != nullptr ? State::running : State::over;
  if (!g_state.compare_exchange_strong(busy, next, std::memory_order_acq_rel) &&
      sidecar != nullptr) {
    sidecar->stop();
    keep_sidecar_reachable();
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

// The state of the cluster's thread: not in use, allowed to start, or not to be started now.
enum class Cluster : int { unused, allowed, held };
constinit std::atomic<Cluster> g_cluster{Cluster::unused};

bool may_start_cluster() {
  return g_state.load(std::memory_order_seq_cst) != State::over &&
         g_cluster.load(std::memory_order_seq_cst) == Cluster::allowed;
}

// Called by a miss in the midst of a fetch.
void start_cluster(cache::ClusterClient& client, cache::OfferSource& source) {
  // While the thread may not start, nothing counts as a try: the next try after that must not be
  // late.
  if (!may_start_cluster()) return;
  // As in start_if_due, the check is expensive. It runs with only the program's own signals
  // blocked: if all signals are blocked, stale words on the stack look like the frame of a handler.
  static constinit std::atomic<std::uint32_t> tries{0};
  const std::uint32_t n = tries.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((!std::has_single_bit(n) && n % 1024 != 0) || base::may_be_in_handler()) return;
  const Starting starting;
  if (!may_start_cluster()) return;
  const KeepErrno keep;
  prefetch::start_cluster_thread(client, source);
  tries.store(0, std::memory_order_relaxed);
}

// Returns false if the thread is unused, or if another caller holds it.
bool hold_cluster() {
  auto allowed = Cluster::allowed;
  return g_cluster.compare_exchange_strong(allowed, Cluster::held, std::memory_order_seq_cst);
}

// Returns whether there was a thread.
bool end_cluster() {
  constexpr std::uint64_t k_patience_ns = 100'000'000;
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache == nullptr || !cache->has_cluster_thread()) return false;
  const KeepErrno keep;
  cache->stop_cluster(k_patience_ns);
  return true;
}

// Ends all threads and sets the state to `next`. Returns whether there were any.
bool end(State next) {
  // No thread is started again before the state is none again.
  auto none = State::none, running = State::running;
  g_state.compare_exchange_strong(none, next, std::memory_order_seq_cst);
  const bool had_scout = g_scout_is_tried.exchange(true, std::memory_order_seq_cst);
  const bool had_reader = g_block_reader_is_tried.exchange(true, std::memory_order_seq_cst);
  const bool holds_cluster = hold_cluster();
  Starting::wait_for_others();
  end_block_reader();
  end_scout();
  const bool had_others = (holds_cluster && end_cluster()) || had_reader || had_scout;
  if (!g_state.compare_exchange_strong(running, next, std::memory_order_acq_rel)) return had_others;
  const KeepErrno keep;
  g_sidecar->stop();
  keep_sidecar_reachable();
  return true;
}

}  // namespace

void stop() { end(State::over); }

static constexpr unsigned k_patience_ms = 500;

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
  g_block_reader_is_tried.store(false, std::memory_order_release);
  g_scout_is_tried.store(false, std::memory_order_release);
  allow_cluster();
}

void allow_cluster() {
  if (process::config().cluster.texts.empty()) return;
  cache::g_start_cluster_thread.store(start_cluster, std::memory_order_release);
  g_cluster.store(Cluster::allowed, std::memory_order_release);
}

// Kept off the path of a hit.
[[gnu::noinline, gnu::cold]] static void start_if_due(cache::FileCache& cache) {
  // No thread is made where a signal handler may have interrupted malloc. A later open tries again,
  // but not each one, because the check is expensive.
  static constinit std::atomic<std::uint32_t> tries{0};
  const std::uint32_t n = tries.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool is_due = std::has_single_bit(n) || n % 1024 == 0;
  if (!is_due || base::may_be_in_handler()) return;
  const cache::FetchAhead& ahead = cache.ahead();
  // A thread that only watches the room of others starts to prefetch as soon as a process wants
  // that.
  const bool is_for_room = process::config().prefetch && ahead.wants_thread() &&
                           !ahead.is_wanted() && !process::has_list();
  is_for_room ? start_threads() : start();
}

void offer_slow(cache::FileCache& cache) {
  const bool wants_thread =
      process::config().prefetch && (cache.ahead().wants_thread() || process::has_list());
  // One process of the node writes to the disk. The others need no thread for it until that process
  // is gone.
  if (wants_thread || prefetch::DiskFlusher::is_wanted(cache)) start_if_due(cache);
}

// Returns any fd of the program that leads to the open file, or -1.
static int fd_of(const cache::LargeFile& file) {
  for (int fd = 0, end = g_fds.end(); fd < end; ++fd) {
    if (g_fds.kind(fd) != RowKind::large) continue;
    const OpenFileRef open = g_fds.acquire_kind(fd, RowKind::large);
    if (open && open->large == &file) return fd;
  }
  return -1;
}

void offer_to_read_ahead(cache::FileCache& cache) {
  if (g_block_reader_is_tried.load(std::memory_order_relaxed) || base::may_be_in_handler()) return;
  const Starting starting;
  if (g_state.load(std::memory_order_seq_cst) == State::over) return;
  if (process::config().prefetch && !prefetch::BlockReader::may_be_tried()) return;
  if (g_block_reader_is_tried.exchange(true, std::memory_order_seq_cst)) return;
  const KeepErrno keep;
  g_block_reader.store(
      process::config().prefetch ? prefetch::BlockReader::start(cache, fd_of) : nullptr,
      std::memory_order_release);
}

static prefetch::MetadataScout* scout(cache::FileCache& cache) {
  if (auto* const running = g_scout.load(std::memory_order_acquire); running != nullptr)
    return running;
  if (g_scout_is_tried.load(std::memory_order_relaxed) || !process::config().prefetch)
    return nullptr;
  if (base::may_be_in_handler()) return nullptr;
  const Starting starting;
  if (g_state.load(std::memory_order_seq_cst) == State::over) return nullptr;
  if (g_scout_is_tried.exchange(true, std::memory_order_seq_cst)) return nullptr;
  const KeepErrno keep;
  auto* const started = prefetch::MetadataScout::start(cache);
  g_scout.store(started, std::memory_order_release);
  return started;
}

static void submit_metadata(cache::FileCache& cache, prefetch::MetadataScout::Wish wish,
                            std::string_view directory, std::string_view name) {
  if (auto* const running = scout(cache); running != nullptr)
    running->submit(wish, directory, name);
}

void list_ahead(cache::FileCache& cache, std::string_view directory) {
  submit_metadata(cache, prefetch::MetadataScout::Wish::list, directory, {});
}

void list_next(cache::FileCache& cache, std::string_view directory) {
  submit_metadata(cache, prefetch::MetadataScout::Wish::next, directory, {});
}

void gather_metadata_near(cache::FileCache& cache, std::string_view key) {
  const std::size_t slash = key.rfind('/');
  submit_metadata(cache, prefetch::MetadataScout::Wish::gather, key.substr(0, slash),
                  key.substr(slash + 1));
}

void gather_metadata_around(cache::FileCache& cache, std::string_view key) {
  submit_metadata(cache, prefetch::MetadataScout::Wish::gather, key.substr(0, key.rfind('/')), {});
}

void follow_metadata(std::string_view key) {
  auto* const running = g_scout.load(std::memory_order_acquire);
  if (running != nullptr)
    running->submit(prefetch::MetadataScout::Wish::follow, key.substr(0, key.rfind('/')), {});
}

bool read_ahead(cache::LargeFile& file, int fd, cache::LargeFile::FdEpoch fd_epoch,
                const cache::LargeFile::Range& range) {
  auto* const reader = g_block_reader.load(std::memory_order_acquire);
  return reader != nullptr && reader->submit(file, fd, fd_epoch, range);
}

bool may_keep_mapped() {
  const auto* const reader = g_block_reader.load(std::memory_order_acquire);
  return reader != nullptr && reader->may_keep_mapped();
}

bool keep_mapped(cache::LargeFile& file, base::Mapping&& own, std::uint64_t begin,
                 const void* program_has, std::uint64_t before) {
  auto* const reader = g_block_reader.load(std::memory_order_acquire);
  return reader != nullptr && reader->keep_mapped(file, std::move(own), begin, program_has, before);
}

void let_go_of(cache::LargeFile& file) {
  if (auto* const reader = g_block_reader.load(std::memory_order_acquire); reader != nullptr)
    reader->let_go_of(file);
}

void opened(const cache::LargeFile& file) {
  if (auto* const reader = g_block_reader.load(std::memory_order_acquire); reader != nullptr)
    reader->opened(file);
}

void unmapped(const void* at, std::size_t length) {
  if (auto* const reader = g_block_reader.load(std::memory_order_acquire); reader != nullptr)
    reader->unmapped(at, length);
}

void end_for_good() {
  bool were_any = false;
  do {
    were_any |= end(State::over);
    // If another thread has paused the threads, it then resumes nothing.
    auto busy = State::busy;
    g_state.compare_exchange_strong(busy, State::over, std::memory_order_acq_rel);
  } while (g_state.load(std::memory_order_acquire) != State::over);
  if (were_any) prefetch::wait_for_background_threads(k_patience_ms);
}

// A destructor of thread-specific data runs whenever a thread ends without ending the process: at
// pthread_exit, thrd_exit, cancellation, and the return of a thread that has forked.
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
  if (g_sidecar != nullptr) keep_sidecar_reachable();
  if (auto* const reader = g_block_reader.exchange(nullptr, std::memory_order_relaxed);
      reader != nullptr) {
    reader->forget();
    keep_reachable(reader);
  }
  if (auto* const scout = g_scout.exchange(nullptr, std::memory_order_relaxed); scout != nullptr)
    keep_reachable(scout);
  // Also forgets the users of files: a thread of the parent may have been one.
  cache::LargeFile::forget_users();
  prefetch::forget_background_threads();
  Starting::forget_others();
  if (g_state.load(std::memory_order_relaxed) == State::over) return;
  g_state.store(State::none, std::memory_order_relaxed);
  g_block_reader_is_tried.store(false, std::memory_order_relaxed);
  g_scout_is_tried.store(false, std::memory_order_relaxed);
  allow_cluster();
}

}  // namespace cube::shim::background
