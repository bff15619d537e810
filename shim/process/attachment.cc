#include "shim/process/attachment.h"

#include <fmt/core.h>
#include <sched.h>

#include <cerrno>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/log.h"
#include "cache/base/process/block_signals.h"
#include "cache/bucket/gateway_start.h"
#include "cache/region/posix_locks.h"
#include "shim/process/c_result.h"

namespace cube::shim::attachment {

constinit std::atomic<cache::FileCache*> g_cache{nullptr};

namespace {

// The spare cache, for the buckets of a process that has no other cache.
constinit std::atomic<cache::FileCache*> g_spare{nullptr};
constinit std::atomic<bool> g_has_told{false};

enum class Attachment : int { none, busy, attached, failed, left };

constinit std::atomic<Attachment> g_attachment{Attachment::none};
// True if a child ended before this process was attached, so that its end is not reported yet.
constinit std::atomic<bool> g_has_untold_child{false};
constinit std::atomic<bool> g_is_child_of_attached{false};
// The number of queries that the program has made without a cache, and the time of the next search
// for a cache (monotonic clock).
constinit std::atomic<std::uint32_t> g_looks{0};
constinit std::atomic<std::uint64_t> g_next_look_ns{0};

constinit thread_local bool t_attaching [[gnu::tls_model("initial-exec")]] = false;

// Converts a failed allocation into an error, because no exception may pass through the program's
// frames.
base::Result<cache::FileCache*> try_attach(bool create, std::string& why) {
  try {
    return cache::FileCache::attach(process::config(), process::job(), create, why);
  } catch (...) {
    return base::fail(ENOMEM);
  }
}

// Requests to the gateway need a region. If a process cannot use its own cache (the name or all
// slots are taken, or the directory is full), it uses the spare cache. The spare cache has room for
// requests and listings, does not depend on the user's settings, and is shared by such processes.
base::Result<cache::FileCache*> attach_spare(std::string& why) {
  constexpr std::uint64_t k_bytes = 8 << 20;
  constexpr std::size_t k_longest_name = 40;
  constexpr int k_names = 8;
  base::Config config = process::config();
  config.ram = {.is_percent = false, .value = k_bytes};
  config.ram_keep = false;
  config.disk_dir.clear();
  config.cluster = {};
  const std::string name = config.name.substr(0, k_longest_name);
  for (const std::string& directory :
       {config.ram_dir, std::string("/dev/shm"), std::string("/tmp")}) {
    config.ram_dir = directory;
    for (int i = 0; i < k_names; ++i) {
      config.name = fmt::format("{}.spare-{}-{}", name, cache::k_layout_version, i);
      auto cache = cache::FileCache::attach(config, process::job(), /*create=*/true, why);
      if (cache) {
        cache::gateway_start::use_region(config.ram_dir, config.name);
        return cache;
      }
      // Another name can succeed only after these errors.
      if (cache.error().value != EBUSY && cache.error().value != EPERM &&
          cache.error().value != EACCES)
        break;
    }
  }
  return base::fail(EIO);
}

// Reports once that this process has no cache. Its children do not repeat the report.
void go_without(std::string_view why) try {
  std::string line = fmt::format("files are read without a cache: {}", why), why_no_spare;
  if (process::has_buckets()) {
    if (const auto spare = attach_spare(why_no_spare)) {
      g_spare.store(*spare, std::memory_order_release);
    } else {
      line += fmt::format("; no bucket can be read: {}", why_no_spare);
    }
  }
  if (!g_has_told.exchange(true, std::memory_order_relaxed))
    base::log(base::LogLevel::warn, "{}", line);
} catch (...) {
  base::log(base::LogLevel::warn, "files are read without a cache: {}", why);
}

cache::FileCache* attach(bool create) {
  const auto state = g_attachment.load(std::memory_order_acquire);
  if (state != Attachment::none && state != Attachment::busy) return attached_cache();
  // If a signal handler jumped out of this function, all other threads would wait forever.
  const base::BlockSignals block;
  auto expected = Attachment::none;
  while (!g_attachment.compare_exchange_strong(expected, Attachment::busy,
                                               std::memory_order_acq_rel)) {
    // Waits while another thread attaches. A signal handler or an allocator may open files while
    // this thread attaches; the thread must not wait for itself.
    if (expected != Attachment::busy || t_attaching) return attached_cache();
    sched_yield();
    expected = Attachment::none;
  }
  t_attaching = true;
  const KeepErrno keep;
  std::string why;
  const auto cache = try_attach(create, why);
  const bool has_failed = !cache && (create || cache.error().value != ENOENT);
  if (has_failed)
    go_without(why.empty() ? base::text_of_error(cache.error().value) : std::string_view(why));
  t_attaching = false;
  if (cache) {
    (*cache)->use_origins(process::origins());
    cache::PosixLocks::note_inherited();
    g_cache.store(*cache, std::memory_order_release);
    g_attachment.store(Attachment::attached, std::memory_order_release);
    if (g_has_untold_child.exchange(false, std::memory_order_acq_rel))
      (*cache)->note_child_ended(0);
    return *cache;
  }
  g_attachment.store(has_failed ? Attachment::failed : Attachment::none, std::memory_order_release);
  return nullptr;
}

}  // namespace

// owns_table() is called first, because it switches serving off if it notices a fork that bypassed
// the shim.
cache::FileCache* attach_to_serve() {
  if (!process::owns_table() || !process::is_active()) return nullptr;
  // before_attaching() is called before anything is served. A report at the end of the process does
  // not call before_attaching(), because destructors of other libraries may already have run.
  if (g_attachment.load(std::memory_order_relaxed) == Attachment::none)
    process::g_upcalls->before_attaching();
  return attach(true);
}

cache::FileCache* existing_cache() {
  cache::FileCache* const cache = attached_cache();
  return cache == nullptr && process::owns_table() && process::tells() ? attach(false) : cache;
}

cache::FileCache* cache_of_device(std::uint64_t device) {
  cache::FileCache* const cache = attached_cache();
  if (cache != nullptr) return cache->changes().knows_device(device) ? cache : nullptr;
  const Attachment state = g_attachment.load(std::memory_order_acquire);
  const bool may_attach =
      process::tells() && state != Attachment::failed && state != Attachment::left;
  return may_attach && cache::FileCache::may_hold(process::config(), device) ? existing_cache()
                                                                             : nullptr;
}

void note_child_ended(std::uint32_t pid) {
  if (auto* const cache = attached_cache(); cache != nullptr) {
    cache->note_child_ended(pid);
  } else {
    g_has_untold_child.store(true, std::memory_order_release);
  }
}

cache::FileCache* cache_for_buckets() {
  cache::FileCache* const own = cache();
  // A child of vfork reads through its parent's cache.
  cache::FileCache* const attached = own != nullptr ? own : attached_cache();
  return attached != nullptr ? attached : g_spare.load(std::memory_order_acquire);
}

bool is_child_of_attached() { return g_is_child_of_attached.load(std::memory_order_relaxed); }

bool has_failed() { return g_attachment.load(std::memory_order_acquire) == Attachment::failed; }

namespace {

bool looks_through_names() {
  constexpr std::uint32_t k_many = 32;
  return process::config().metadata && g_looks.load(std::memory_order_relaxed) > k_many;
}

}  // namespace

bool may_have_cache_to_look_at() {
  if (attached_cache() != nullptr || process::has_list()) return true;
  if (g_attachment.load(std::memory_order_relaxed) != Attachment::none) return false;
  // A command that only stats a few files does not attach. After the first few queries, one query
  // per second tries to attach to a region.
  constexpr std::uint32_t k_few = 8;
  constexpr std::uint64_t k_pause_ns = 1'000'000'000;
  const std::uint32_t looks = g_looks.fetch_add(1, std::memory_order_relaxed);
  if (looks < k_few) return false;
  if (looks_through_names()) return true;
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = g_next_look_ns.load(std::memory_order_relaxed);
  return now >= due &&
         g_next_look_ns.compare_exchange_strong(due, now + k_pause_ns, std::memory_order_relaxed);
}

cache::FileCache* cache_to_look_at() {
  // For a program that queries this many files, a region is worth its cost.
  return process::has_list() || looks_through_names() ? cache() : existing_cache();
}

cache::FileCache* cache_to_report_by() {
  // The first process of a job may have read nothing, but have changed its namespaces (unshare) for
  // processes that do read.
  const base::Config& config = process::config();
  const bool may_attach = config.mode != base::Mode::off && !config.prefixes.empty();
  return attached_cache() == nullptr && may_attach ? attach(false) : attached_cache();
}

void leave() {
  if (auto* const spare = g_spare.exchange(nullptr, std::memory_order_acq_rel); spare != nullptr)
    spare->detach();
  cache::FileCache* const cache = attached_cache();
  if (cache == nullptr) return;
  g_cache.store(nullptr, std::memory_order_release);
  g_attachment.store(Attachment::left, std::memory_order_release);
  cache->detach();
}

void become_child() {
  cache::FileCache* const parents = g_cache.exchange(nullptr, std::memory_order_acq_rel);
  if (parents != nullptr) {
    parents->abandon();
    g_is_child_of_attached.store(true, std::memory_order_relaxed);
  }
  cache::FileCache* const spare = g_spare.exchange(nullptr, std::memory_order_acq_rel);
  if (spare != nullptr) spare->abandon();
  const auto was = g_attachment.load(std::memory_order_acquire);
  // If the parent's attach failed, the child does not try again, except if it needs a spare cache.
  if (spare != nullptr || was != Attachment::failed)
    g_attachment.store(Attachment::none, std::memory_order_release);
}

}  // namespace cube::shim::attachment
