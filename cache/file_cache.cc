#include "cache/file_cache.h"

#include <cerrno>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/hash.h"
#include "cache/base/log.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/base/memory/held.h"
#include "cache/base/process/lowest_closed.h"
#include "cache/base/process/signal_frame.h"
#include "cache/fill/demand_open.h"
#include "cache/fill/partial_fill.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/lanes.h"
#include "cache/region/life/process_slots.h"
#include "cache/tier/disk_tier.h"
#include "cache/tier/shared/cluster_tier.h"

namespace cube::cache {
namespace {

using base::Counter;

// Every miss is timed, but only one in k_timed_hits hits. The step of the golden section samples
// each kind of open even if a program opens files in a rhythm (cv2 opens each file twice).
constexpr std::uint32_t k_timed_hits = 32, k_step = 0x9E3779B9;

constinit thread_local std::uint32_t t_opens [[gnu::tls_model("initial-exec")]] = 0;

}  // namespace

base::Result<FileCache*> FileCache::attach(const base::Config& config, const base::ProcessId& job,
                                           bool create, std::string& why) {
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
  (*region)->bound_resident(config.rss);
  if (!config.disk_dir.empty()) cache->attach_disk(config, job);
  if (!config.cluster.texts.empty()) cache->attach_cluster(config);
  return cache;
}

void FileCache::attach_disk(const base::Config& config, const base::ProcessId& job) {
  std::string why;
  auto disk = DiskTier::open(config, job, why);
  RegionHeader& header = parts_.region.header();
  if (!disk) {
    // Only the first process warns.
    const bool is_first = header.disk_told.exchange(1, std::memory_order_relaxed) == 0;
    base::log(is_first ? base::LogLevel::warn : base::LogLevel::info, "nothing is kept on disk: {}",
              why.empty() ? base::text_of_error(disk.error().value) : why);
    return;
  }
  parts_.tiers.add(**disk);
  note_status(header, **disk);
  if (const std::uint64_t least = (*disk)->least_bound_for_blocks(parts_.rules.block); least != 0)
    base::log(base::LogLevel::info,
              "CUBESHIM_DISK is too small for blocks of large files (CUBESHIM_BLOCK={}): {} MiB "
              "are needed",
              parts_.rules.block, (least >> 20) + 1);
  // A file that has no room in memory passes through the ring on its way from or to the disk.
  ahead_.make_ring(config.ring);
  if (!parts_.ram.ring().is_made())
    base::log(base::LogLevel::info,
              "CUBESHIM_RAM is too small for a ring: the disk holds only what fits into memory");
}

void FileCache::attach_cluster(const base::Config& config) {
  std::string why;
  const auto cluster = ClusterTier::open(config, parts_.ram, parts_.stats(), why);
  if (!cluster) {
    base::log(base::LogLevel::warn, "nothing is shared with other nodes: {}",
              why.empty() ? base::text_of_error(cluster.error().value) : why);
    return;
  }
  cluster_ = *cluster;
  parts_.remote.add(**cluster);
  parts_.region.header().tiers[(*cluster)->kind()].is_there.store(1, std::memory_order_relaxed);
  // A file that has no room in memory passes through the ring on its way from or to the cluster.
  ahead_.make_ring(config.ring);
}

FileCache::FileCache(Region& region, const base::Config& config)
    : parts_(region, config),
      changes_(parts_),
      ahead_(parts_),
      large_(parts_),
      metadata_(region, parts_.ram, parts_.tiers, parts_.remote, config),
      corrections_(parts_, changes_, metadata_) {
  parts_.freshness.use_known_stats(metadata_);
}

Pin FileCache::find(const OpenRequest& request) {
  Pin pin = parts_.ram.find(request.key, base::hash_path(request.key));
  bool has_waited = false;
  if (pin && !parts_.freshness.is_fresh(*pin, request.path, has_waited)) pin.release();
  return pin;
}

OpenOutcome FileCache::open(const OpenRequest& request) {
  base::Stats& stats = parts_.stats();
  const bool timed = t_opens < UINT32_MAX / k_timed_hits;
  t_opens += k_step;
  const std::uint64_t began = timed ? base::monotonic_ns() : 0;
  const std::uint64_t hash = base::hash_path(request.key);

  OpenOutcome outcome;
  outcome.pin = parts_.ram.find(request.key, hash);
  if (outcome.pin &&
      parts_.freshness.is_fresh(*outcome.pin, request.path, outcome.has_waited_for_stat)) {
    count_hit(parts_.region);
    if (outcome.pin->is_prefetched())
      parts_.note_opened(*outcome.pin, /*waited_for_prefetch=*/false);
    if (timed) {
      stats.hit_latency.add(base::monotonic_ns() - began);
      parts_.region.note_read(outcome.pin->stat.size * k_timed_hits);
    }
    return outcome;
  }
  outcome.pin.release();
  if (metadata_.is_absent(request.key)) {
    parts_.count_unserved(Counter::bypassed_error, request.key);
    outcome.error = ENOENT;
    outcome.is_known_absent = true;
    return outcome;
  }
  // A signal handler that opens a file must neither wait nor fetch.
  if (FetchScope::is_open())
    return DemandOpen(parts_, request).open_uncached(Counter::bypassed_busy);
  const base::LowestClosed closed;
  outcome = DemandOpen(parts_, request).open(hash);
  if (outcome.pin) {
    outcome.freed_fd = closed.fd();
    parts_.region.note_read(outcome.pin->stat.size);
  }
  return outcome;
}

base::Result<Pin> FileCache::make_mappable(const Record& record) {
  if (FetchScope::is_open() || !parts_.ram.is_within_region(record) ||
      record.stat.size != record.data_size)
    return base::fail(EBUSY);
  const FetchScope scope;
  ChangeWatch watch(parts_.region);
  watch.watch(record.stat);
  auto reservation =
      parts_.ram.reserve(record.path_length, record.data_size, RecordShape::mappable);
  if (!reservation) return base::fail(reservation.error().value);
  base::copy_bytes(reservation->data(), record.data(), record.data_size);
  RecordContent content;
  content.path = record.path();
  content.stat = record.stat;
  content.physical = record.is_physical();
  content.origin = record.origin;
  content.fetched_ns = record.fetched_ns;
  content.verified_ns = record.verified_ns.load(std::memory_order_relaxed);
  auto pin = parts_.ram.publish(*reservation, content);
  if (!pin) return pin;
  // Confirms the record as a fetch does. A later change could not mark the old record, because the
  // index no longer has it. So the old record is marked here, and processes that have it open read
  // from the origin from now on.
  const bool confirmed = !record.is_stale() && watch.is_unchanged() &&
                         parts_.ram.confirm(std::move(*reservation), *pin);
  parts_.ram.mark_record_stale(record, Record::k_changed | Record::k_replaced);
  if (!confirmed) {
    parts_.ram.mark_record_stale(**pin);
    return base::fail(ESTALE);
  }
  return pin;
}

bool FileCache::has_cluster_thread() const {
  if (cluster_ == nullptr) return false;
  const auto life = cluster_->client().life();
  return life == ClusterClient::Life::starting || life == ClusterClient::Life::running;
}

bool FileCache::stop_cluster(std::uint64_t at_most_ns) {
  return cluster_ == nullptr || cluster_->client().stop(at_most_ns);
}

void FileCache::note_child_ended(std::uint32_t pid) {
  Region& region = parts_.region;
  if (pid == 0 || !take_attached(region, region.own_process().process, pid)) metadata_.doubt();
}

void FileCache::note_exec() {
  cache::note_exec(parts_.region, parts_.region.own_process().process);
}

void FileCache::detach() {
  PartialFill::give_up_all();
  parts_.ram.release_lease();
  parts_.region.detach();
}

void FileCache::abandon() {
  parts_.for_each_tier([](Tier& tier) { tier.abandon(); });
  parts_.ram.abandon();
  // A signal handler that forked may return into a read of this thread that uses the mapped memory.
  if (base::t_held_count == 0 || !base::may_be_in_handler()) parts_.region.unmap();
  FetchScope::forget();
  SingleFlight::forget_flights();
}

void FileCache::forget_fills() { PartialFill::forget_all(); }

}  // namespace cube::cache
