#include "cache/file_cache.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/ram/process_slots.h"

namespace cube::cache {
namespace {

using base::Counter;

// A file that was written this recently may be written again within the grain of its mtime, or by a clock that differs.
constexpr std::uint64_t k_recent_seconds = 60;
constexpr std::uint64_t k_racy_seconds = 2;
// One open in this many is timed if it is a hit; a miss always is.
constexpr std::uint64_t k_timed_hits = 32;

// Is this thread inside a fetch? A signal handler that opens a file then must neither wait nor fetch.
constinit thread_local bool t_fetching [[gnu::tls_model("initial-exec")]] = false;

constinit thread_local std::uint32_t t_opens [[gnu::tls_model("initial-exec")]] = 0;

struct FetchingMark {
  FetchingMark() { t_fetching = true; }
  ~FetchingMark() { t_fetching = false; }
};

bool is_recent(const FileTime& time, std::uint64_t now_ns, std::uint64_t seconds) {
  const auto now = static_cast<std::int64_t>(now_ns / 1'000'000'000ULL);
  const std::int64_t age = now > time.seconds ? now - time.seconds : time.seconds - now;
  return age < static_cast<std::int64_t>(seconds);
}

}  // namespace

base::Result<FileCache*> FileCache::attach(const base::Config& config, const base::ProcessId& job, bool create,
                                           std::string& why) {
  RegionOptions options;
  options.directory = config.ram_dir;
  options.name = config.name;
  options.is_percent = config.ram.is_percent;
  options.size = config.ram.value;
  options.keep = config.ram_keep;
  options.create = create;
  options.job = job;
  const auto region = Region::attach(options, why);
  if (!region) return base::fail(region.error().value);
  auto* const cache = new (std::nothrow) FileCache(**region, config);
  if (cache == nullptr) return base::fail(ENOMEM);
  cache->job_start_ns_ = (*region)->job_row((*region)->own_job()).started_ns;
  return cache;
}

FileCache::FileCache(Region& region, const base::Config& config)
    : region_(&region), ram_(region), flights_(region), max_file_(config.max_file), consistency_(config.consistency) {}

bool FileCache::is_fresh(const Record& record, const char* path) {
  using base::ConsistencyKind;
  const std::uint64_t verified = record.verified_ns.load(std::memory_order_relaxed);
  switch (consistency_.kind) {
    case ConsistencyKind::immutable:
      // What was fetched or checked since this job began is good for this job.
      if (verified >= job_start_ns_) return true;
      break;
    case ConsistencyKind::ttl: {
      const std::uint64_t now = base::wall_ns();
      // A clock that was set back makes a record old, not eternal.
      if (now >= verified && now - verified < consistency_.ttl_seconds * 1'000'000'000ULL) return true;
      break;
    }
    case ConsistencyKind::open: break;
  }
  stats().count(Counter::origin_stats);
  const std::uint64_t now = base::wall_ns();
  const auto current = stat_path(AT_FDCWD, path, 0);
  if (current && current->same_content(record.stat)) {
    if (consistency_.kind != ConsistencyKind::open) ram_.mark_verified(record, now);
    return true;
  }
  ram_.mark_stale(record.path());
  return false;
}

Pin FileCache::find(const OpenRequest& request) {
  Pin pin = ram_.find(request.key, base::hash_path(request.key));
  if (pin && !is_fresh(*pin, request.path)) pin.release();
  return pin;
}

OpenOutcome FileCache::open(const OpenRequest& request) {
  base::Stats& stats = this->stats();
  const bool timed = t_opens++ % k_timed_hits == 0;
  const std::uint64_t began = timed ? base::monotonic_ns() : 0;
  const std::uint64_t hash = base::hash_path(request.key);

  OpenOutcome outcome;
  outcome.pin = ram_.find(request.key, hash);
  if (outcome.pin && is_fresh(*outcome.pin, request.path)) {
    stats.count(Counter::hits_ram);
    if (timed) stats.hit_latency.add(base::monotonic_ns() - began);
    return outcome;
  }
  outcome.pin.release();
  if (t_fetching) return open_plain(request, Counter::bypassed_busy);
  if (ram_.is_full()) return open_plain(request, Counter::bypassed_full);

  const FetchingMark mark;
  keep_alive(*region_);
  SingleFlight::Ticket ticket;
  switch (flights_.begin(hash, ticket)) {
    case SingleFlight::Turn::mine: break;
    case SingleFlight::Turn::waited:
      outcome.pin = ram_.find(request.key, hash);
      if (outcome.pin) {
        stats.count(Counter::hits_ram);
        return outcome;
      }
      break;
    case SingleFlight::Turn::too_long: return open_plain(request, Counter::bypassed_busy);
  }
  const std::uint64_t fetch_began = base::monotonic_ns();
  outcome = fetch(request);
  if (outcome.pin) {
    stats.count(Counter::misses);
    stats.miss_latency.add(base::monotonic_ns() - fetch_began);
  }
  return outcome;
}

OpenOutcome FileCache::open_plain(const OpenRequest& request, Counter reason) {
  stats().count(reason);
  OpenOutcome outcome;
  request.before_kernel_open();
  const long fd = base::sys::open(request.path, request.flags);
  if (base::sys::failed(fd)) {
    outcome.error = static_cast<int>(-fd);
  } else {
    outcome.kernel_fd = static_cast<int>(fd);
  }
  return outcome;
}

OpenOutcome FileCache::hand_over(OriginFile&& file, Counter reason) {
  stats().count(reason);
  OpenOutcome outcome;
  outcome.is_directory = (file.stat().mode & S_IFMT) == S_IFDIR;
  outcome.kernel_fd = file.release();
  return outcome;
}

std::uint32_t FileCache::stripe_index(const FileStat& stat) {
  return static_cast<std::uint32_t>(base::hash_inode(stat.device(), stat.inode) % k_writer_stripes);
}
WriterStripe& FileCache::stripe_of(const FileStat& stat) { return region_->writer_stripe(stripe_index(stat)); }

OpenOutcome FileCache::fetch(const OpenRequest& request) {
  base::Stats& stats = this->stats();
  request.before_kernel_open();
  // A name that changes from here on may no longer be that of what we fetch.
  const std::uint64_t names = region_->header().name_changes.load(std::memory_order_seq_cst);
  const std::uint64_t began = base::wall_ns();
  auto file = OriginFile::open(request.path, request.flags, stats);
  if (!file) {
    stats.count(Counter::bypassed_error);
    OpenOutcome outcome;
    outcome.error = file.error().value;
    return outcome;
  }
  const FileStat& stat = file->stat();
  if (!stat.is_regular()) return hand_over(std::move(*file), Counter::bypassed_kind);
  if (stat.size > max_file_) return hand_over(std::move(*file), Counter::bypassed_size);

  // Writers of this node: seen before the read, or by the epoch after it (see writing_begins).
  WriterStripe& stripe = stripe_of(stat);
  const std::uint32_t epoch = stripe.epoch.load(std::memory_order_seq_cst);
  if (stripe.active.load(std::memory_order_seq_cst) != 0) return hand_over(std::move(*file), Counter::bypassed_busy);

  auto reservation = ram_.reserve(request.key.size(), stat.size);
  if (!reservation) return hand_over(std::move(*file), Counter::bypassed_full);
  if (!file->read_whole(reservation->data(), stats)) return hand_over(std::move(*file), Counter::bypassed_busy);

  RecordContent content;
  content.path = request.key;
  content.stat = stat;
  content.physical = file->is_physical(request.key);
  content.fetched_ns = began;
  content.verified_ns = began;
  // Where changes are expected, a file may be written twice within the grain of its mtime: then it is not for caching yet.
  if (consistency_.kind != base::ConsistencyKind::immutable && is_recent(stat.modified, began, k_racy_seconds)) {
    return hand_over(std::move(*file), Counter::bypassed_busy);
  }
  const bool doubtful = is_recent(stat.modified, began, k_recent_seconds) || is_recent(stat.changed, began, k_recent_seconds);
  if (doubtful && !file->is_unchanged(stats)) return hand_over(std::move(*file), Counter::bypassed_busy);

  auto pin = ram_.publish(*reservation, content);
  if (!pin) return hand_over(std::move(*file), Counter::bypassed_full);
  // Either we see the change here, or who made it has seen the record and marked it, and it cannot be confirmed.
  const bool unchanged = stripe.epoch.load(std::memory_order_seq_cst) == epoch &&
                         region_->header().name_changes.load(std::memory_order_seq_cst) == names;
  if (!unchanged || !ram_.confirm(std::move(*reservation), *pin)) return hand_over(std::move(*file), Counter::bypassed_busy);
  OpenOutcome outcome;
  outcome.pin = std::move(*pin);
  return outcome;
}

base::Result<Pin> FileCache::make_mappable(const Record& record) {
  if (t_fetching) return base::fail(EBUSY);
  const FetchingMark mark;
  WriterStripe& stripe = stripe_of(record.stat);
  const std::uint32_t epoch = stripe.epoch.load(std::memory_order_seq_cst);
  const std::uint64_t names = region_->header().name_changes.load(std::memory_order_seq_cst);
  auto reservation = ram_.reserve(record.path_length, record.data_size, /*mappable=*/true);
  if (!reservation) return base::fail(reservation.error().value);
  std::memcpy(reservation->data(), record.data(), record.data_size);
  RecordContent content;
  content.path = record.path();
  content.stat = record.stat;
  content.physical = record.is_physical();
  content.fetched_ns = record.fetched_ns;
  content.verified_ns = record.verified_ns.load(std::memory_order_relaxed);
  auto pin = ram_.publish(*reservation, content);
  if (!pin) return pin;
  // As in fetch. The index has forgotten the old record, so a later change could not mark it: those who have it open turn
  // to the origin from now on.
  const bool unchanged = !record.is_stale() && stripe.epoch.load(std::memory_order_seq_cst) == epoch &&
                         region_->header().name_changes.load(std::memory_order_seq_cst) == names;
  const bool confirmed = unchanged && ram_.confirm(std::move(*reservation), *pin);
  ram_.mark_record_stale(record);
  if (!confirmed) return base::fail(ESTALE);
  return pin;
}

void FileCache::content_changed(std::string_view key, const FileStat* stat) {
  if (!key.empty()) region_->header().name_changes.fetch_add(1, std::memory_order_seq_cst);
  // The epoch first: a fetch that has read the old bytes and publishes them now sees that it must not.
  if (stat != nullptr) stripe_of(*stat).epoch.fetch_add(1, std::memory_order_seq_cst);
  std::size_t marked = key.empty() ? 0 : ram_.mark_stale(key);
  if (stat != nullptr) marked += ram_.mark_stale_inode(*stat);
  stats().count(Counter::stale_marked, marked);
}

void FileCache::tree_changed(std::string_view directory) {
  region_->header().name_changes.fetch_add(1, std::memory_order_seq_cst);
  if (!is_empty()) stats().count(Counter::stale_marked, ram_.mark_stale_tree(directory));
}

void FileCache::writing_begins(std::string_view key, const FileStat& stat) {
  const std::uint32_t stripe = stripe_index(stat);
  // Our own row last: killed in between, the stripe stays closed, which is only slow.
  region_->writer_stripe(stripe).active.fetch_add(1, std::memory_order_seq_cst);
  region_->own_writers(region_->own_slot())[stripe].fetch_add(1, std::memory_order_seq_cst);
  content_changed(key, &stat);
}

void FileCache::writing_ends(const FileStat& stat) {
  content_changed({}, &stat);
  const std::uint32_t stripe = stripe_index(stat);
  region_->own_writers(region_->own_slot())[stripe].fetch_sub(1, std::memory_order_seq_cst);
  region_->writer_stripe(stripe).active.fetch_sub(1, std::memory_order_seq_cst);
}

void FileCache::detach() {
  ram_.release_lease();
  region_->detach();
}

void FileCache::abandon() {
  ram_.abandon();
  region_->unmap();
  forget_claim_after_fork();
}

}  // namespace cube::cache
