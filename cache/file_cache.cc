#include "cache/file_cache.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "cache/base/block_signals.h"
#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/fetch.h"
#include "cache/fill.h"
#include "cache/ram/fetch_scope.h"
#include "cache/ram/process_slots.h"
#include "cache/ram/segments.h"
#include "cache/recent_misses.h"

namespace cube::cache {
namespace {

using base::Counter;

// One open in this many is timed if it is a hit; a miss always is.
constexpr std::uint64_t k_timed_hits = 32;
// Smaller files are fetched as a whole by their open: they are there before a program could do anything meanwhile.
constexpr std::uint64_t k_in_parts_from = 1 << 20;

constinit thread_local std::uint32_t t_opens [[gnu::tls_model("initial-exec")]] = 0;

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
  if (!config.disk_dir.empty()) cache->attach_disk(config, job);
  return cache;
}

void FileCache::attach_disk(const base::Config& config, const base::ProcessId& job) {
  std::string why;
  auto disk = DiskTier::open(config, job, why);
  RegionHeader& header = region_->header();
  if (!disk) {
    // Once, not by each process.
    const bool is_first = header.disk_told.exchange(1, std::memory_order_relaxed) == 0;
    base::log(is_first ? base::LogLevel::warn : base::LogLevel::info, "nothing is kept on disk: {}",
              why.empty() ? text_of_error(disk.error().value) : why);
    return;
  }
  disk_ = *disk;
  disk_->tell(header);
  // Files that have no room in memory pass through the ring, from the disk or on their way there.
  make_ring(config.ring);
  if (!ram_.ring().is_made())
    base::log(base::LogLevel::info, "CUBESHIM_RAM is too small for a ring: the disk serves and gets what fits into memory");
}

void FileCache::make_ring(const base::RamSize& size) {
  const RegionLayout& layout = region_->layout();
  ram_.ring().make(size.is_percent ? layout.file_bytes * size.value / 100 : size.value);
}

std::optional<std::uint64_t> FileCache::fill_from_disk(std::string_view key, const FileStat& stat, std::byte* room) {
  return disk_ != nullptr ? disk_->fill(key, stat, room) : std::nullopt;
}

FileCache::FileCache(Region& region, const base::Config& config)
    : region_(&region),
      ram_(region),
      flights_(region),
      rules_{config.max_file, config.consistency.kind},
      consistency_(config.consistency),
      fetches_ahead_(config.prefetch),
      serves_in_parts_(config.mode == base::Mode::virtual_files) {}

bool FileCache::needs_no_look(const Record& record) const {
  using base::ConsistencyKind;
  if (origins_ != nullptr || record.origin != k_mounts) {
    const Origin& origin = origin_of(record.path());
    // A record of a pack is for the processes that see that pack there, and for nobody else.
    if (origin.id() != record.origin) return false;
    if (origin.traits().is_immutable) return true;
  }
  const std::uint64_t verified = record.verified_ns.load(std::memory_order_relaxed);
  switch (consistency_.kind) {
    // A record that was fetched or checked since this job began is good for this job.
    case ConsistencyKind::immutable: return verified >= job_start_ns_;
    case ConsistencyKind::ttl: {
      const std::uint64_t now = base::boot_ns();
      return now >= verified && now - verified < consistency_.ttl_seconds * 1'000'000'000ULL;
    }
    case ConsistencyKind::open: break;
  }
  return false;
}

bool FileCache::is_fresh(const Record& record, const char* path) {
  if (needs_no_look(record)) return true;
  stats().count(Counter::origin_stats);
  const std::uint64_t now = base::boot_ns();
  const auto current = origin_of(record.path()).stat(record.path(), path);
  if (current && current->is_unchanged_since(record.stat)) {
    if (consistency_.kind != base::ConsistencyKind::open) ram_.mark_verified(record, now);
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
    if (outcome.pin->is_prefetched()) note_opened(*outcome.pin, /*waited_for_prefetch=*/false);
    if (timed) stats.hit_latency.add(base::monotonic_ns() - began);
    return outcome;
  }
  outcome.pin.release();
  // A signal handler that opens a file must neither wait nor fetch.
  if (FetchScope::is_open()) return open_uncached(request, Counter::bypassed_busy);
  outcome = open_missing(request, hash);
  outcome.used_fd = static_cast<bool>(outcome.pin);
  return outcome;
}

void FileCache::note_opened(const Record& record, bool waited_for_prefetch) {
  if (!ram_.ring().note_opened(record)) return;
  stats().count(waited_for_prefetch ? Counter::prefetch_late : Counter::prefetch_early);
  if (fetches_ahead_) listings().note_read(record.path(), record.data_size, /*was_fetched_ahead=*/true);
}

OpenOutcome FileCache::open_missing(const OpenRequest& request, std::uint64_t hash) {
  const bool has_room = !ram_.is_full() || ram_.find_of_others(request.key, hash);
  const bool has_ring = disk_ != nullptr && ram_.ring().is_made();
  // Without room, and without anybody who may be about to bring it, it is the origin's at once.
  if (!has_room && !ram_.ring().is_made()) return open_uncached(request, Counter::bypassed_full);

  FetchScope scope;
  SingleFlight::Ticket ticket;
  OpenOutcome outcome;
  bool waited_for_prefetch = false;
  // A caller that asks not to wait may be opening a FIFO, and the holder of the turn may be waiting in its open.
  const bool may_wait = (request.flags & O_NONBLOCK) == 0;
  const SingleFlight::Turn turn = flights_.begin(hash, ticket, &waited_for_prefetch, may_wait);
  if (turn == SingleFlight::Turn::too_long) return open_uncached(request, Counter::bypassed_busy);
  scope.hold(ticket.hold());
  // Somebody may have fetched it since we looked, whether we have waited for him or not. His look may be older than this open,
  // or this job: it counts as that of any other record.
  outcome.pin = ram_.find(request.key, hash);
  if (outcome.pin && is_fresh(*outcome.pin, request.path)) {
    stats().count(Counter::hits_ram);
    if (outcome.pin->is_prefetched()) note_opened(*outcome.pin, waited_for_prefetch);
    return outcome;
  }
  outcome.pin.release();
  // From here on the program waits for the origin, not for a prefetch.
  scope.begin_wait(region_->own_process());
  if (!has_room) note_miss(*region_, hash);
  if ((has_room || has_ring) && open_from_disk(request, has_ring ? Lane::demand_with_ring : Lane::demand, outcome))
    return outcome;
  // A file that nobody would write to the disk need not pass through the ring.
  const bool may_pass = has_ring && ram_.ring().has_disk_writer();
  if (!has_room && !may_pass) {
    // It is not going to be there for those who wait for their turn: they need not open it one after the other.
    ticket = {};
    return open_uncached(request, Counter::bypassed_full);
  }
  outcome = fetch(request, may_pass ? Lane::demand_with_ring : Lane::demand, ticket);
  outcome.was_fetched = outcome.pin || outcome.is_filling;
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

// A file below the prefix of a pack that the pack does not have is the kernel's to answer.
OpenOutcome FileCache::fail(const OpenRequest& request, const Origin& origin, int error) {
  if (error == ENOENT && !origin.traits().knows_all_names) return open_plain(request, Counter::bypassed_kind);
  stats().count(error == EISDIR ? Counter::bypassed_kind : Counter::bypassed_error);
  OpenOutcome outcome;
  outcome.error = error;
  return outcome;
}

OpenOutcome FileCache::open_uncached(const OpenRequest& request, Counter reason) {
  const Origin& origin = origin_of(request.key);
  if (origin.traits().has_kernel_fd) return open_plain(request, reason);
  OpenedPlace place;
  const auto opened =
      origin.open({.key = request.key, .path = request.path, .flags = request.flags, .most = rules_.max_file}, place);
  return opened ? hand_over(request, *place.opened(), reason) : fail(request, origin, opened.error().value);
}

OpenOutcome FileCache::hand_over(const OpenRequest& request, Opened& opened, Counter reason) {
  stats().count(reason);
  OpenOutcome outcome;
  if (opened.fd() < 0) request.before_kernel_open();
  const auto fd = opened.hand_over(request.flags);
  outcome.is_directory = (opened.file().stat.mode & S_IFMT) == S_IFDIR;
  if (fd) {
    outcome.kernel_fd = *fd;
  } else {
    outcome.error = fd.error().value;
  }
  return outcome;
}

bool FileCache::serve_in_parts(const OpenRequest& request, Fetch& fetch, Opened& opened, SingleFlight::Ticket& turn,
                               OpenOutcome& outcome) {
  const bool is_worth_it = opened.fd() >= 0 && opened.file().stat.size >= k_in_parts_from;
  if (request.serve_fill == nullptr || !serves_in_parts_ || !is_worth_it) return false;
  // Until the program's number is known to be the fill's, a handler must not leave by a jump.
  const base::BlockSignals block;
  Fill* const fill = Fill::begin(fetch, turn);
  if (fill == nullptr) return false;
  outcome.kernel_fd = opened.hand_over(request.flags).value_or(-1);
  outcome.is_filling = outcome.kernel_fd >= 0 && request.serve_fill(request.who, *fill, outcome.kernel_fd);
  stats().count(outcome.is_filling ? Counter::misses : Counter::bypassed_busy);
  if (!outcome.is_filling) fill->end();
  if (outcome.kernel_fd < 0) outcome.error = EINTR;
  return true;
}

bool FileCache::may_fetch_neighbours() const {
  return fetches_ahead_ && origins_ != nullptr && !ram_.is_full() && origins_->packed_bytes() <= ram_.resident_bytes() / 8 * 7;
}

OpenOutcome FileCache::fetch(const OpenRequest& request, Lane lane, SingleFlight::Ticket& turn) {
  const std::uint64_t began = base::monotonic_ns();
  const Origin& origin = origin_of(request.key);
  if (origin.traits().has_kernel_fd) request.before_kernel_open();
  Fetch fetch(ram_, rules_, request.key, lane);
  const OriginOpen wish{.key = request.key,
                        .path = request.path,
                        .flags = request.flags,
                        .most = rules_.max_file,
                        .with_neighbours = may_fetch_neighbours(),
                        .stats = &stats()};
  OpenedPlace place;
  const auto opened = origin.open(wish, place);
  OpenOutcome outcome =
      opened ? fetch_opened(request, origin, *place.opened(), fetch, turn) : fail(request, origin, opened.error().value);
  if (outcome.was_fetched) stats().miss_latency.add(base::monotonic_ns() - began);
  // Neighbours of a directory, too: nobody reads their part of the pack again.
  if (place.opened() != nullptr) keep_neighbours(origin, *place.opened());
  return outcome;
}

OpenOutcome FileCache::fetch_opened(const OpenRequest& request, const Origin& origin, Opened& opened, Fetch& fetch,
                                    SingleFlight::Ticket& turn) {
  base::Stats& stats = this->stats();
  const FileAtOrigin& file = opened.file();
  const bool has_been_read = origin.traits().is_whole_in_one_read;
  OpenOutcome outcome;
  switch (fetch.accept(file, opened.fd())) {
    case Fetch::Next::refuse: return hand_over(request, opened, fetch.reason());
    case Fetch::Next::done:
      stats.count(has_been_read ? Counter::misses : Counter::hits_ram);
      outcome.was_fetched = has_been_read;
      outcome.pin = std::move(fetch.pin());
      if (outcome.pin->is_prefetched()) note_opened(*outcome.pin, /*waited_for_prefetch=*/false);
      return outcome;
    case Fetch::Next::read: break;
  }
  const auto hash_on_disk = has_been_read ? std::nullopt : fill_from_disk(request.key, file.stat, fetch.room());
  const bool is_on_disk = hash_on_disk.has_value();
  outcome.was_fetched = !is_on_disk;
  if (!is_on_disk && serve_in_parts(request, fetch, opened, turn, outcome)) return outcome;
  if (const auto read = is_on_disk ? base::Result<void>() : opened.read_whole(fetch.room()); !read) {
    if (read.error().value != EINTR) return hand_over(request, opened, Counter::bypassed_busy);
    // The program has taken a signal that was to end its waiting: were the file handed over, its own read would begin to
    // wait anew.
    stats.count(Counter::bypassed_error);
    outcome.was_fetched = false;
    outcome.error = EINTR;
    return outcome;
  }
  // The bytes on the disk are those of this stat, whatever has become of the file meanwhile.
  if (!is_on_disk && fetch.wants_second_look() && !opened.is_unchanged())
    return hand_over(request, opened, Counter::bypassed_busy);
  if (hash_on_disk) fetch.note_from_disk(*hash_on_disk);
  if (const auto hash = opened.data_hash(); hash) fetch.note_hash(*hash);
  if (!fetch.publish()) return hand_over(request, opened, fetch.reason());
  stats.count(is_on_disk ? Counter::hits_disk : Counter::misses);
  outcome.pin = std::move(fetch.pin());
  return outcome;
}

void FileCache::keep_neighbours(const Origin& origin, Opened& opened) {
  Opened::Neighbour neighbour;
  while (!ram_.is_full() && opened.next_neighbour(neighbour)) {
    // Below another pack's prefix it is that one's.
    if (&origin_of(neighbour.key) == &origin) keep_neighbour(neighbour);
  }
}

// As a prefetch: an open of the same file waits for it meanwhile, and it waits for nobody.
void FileCache::keep_neighbour(const Opened::Neighbour& neighbour) {
  const std::string_view key = neighbour.key;
  const std::uint64_t hash = base::hash_path(key);
  if (const Pin there = ram_.find(key, hash)) {
    if (has_right_origin(*there)) return;
    // It is a record of a pack that was replaced: an open of it would find that out, and would have to read it alone.
    ram_.mark_stale(key);
  }
  SingleFlight::Ticket ticket;
  if (flights_.begin_prefetch(hash, ticket) != SingleFlight::Prefetch::mine || ram_.find(key, hash)) return;
  Fetch fetch(ram_, rules_, key, Lane::background);
  if (fetch.accept(neighbour.file) != Fetch::Next::read) return;
  if (neighbour.file.stat.size != 0) std::memcpy(fetch.room(), neighbour.data, neighbour.file.stat.size);
  fetch.note_hash(neighbour.data_hash);
  if (fetch.publish()) stats().count(Counter::prefetch_fetched);
}

base::Result<Pin> FileCache::make_mappable(const Record& record) {
  if (FetchScope::is_open() || !ram_.is_within_region(record) || record.stat.size != record.data_size) return base::fail(EBUSY);
  const FetchScope scope;
  ChangeWatch watch(*region_);
  watch.watch(record.stat);
  auto reservation = ram_.reserve(record.path_length, record.data_size, RecordShape::mappable);
  if (!reservation) return base::fail(reservation.error().value);
  std::memcpy(reservation->data(), record.data(), record.data_size);
  RecordContent content;
  content.path = record.path();
  content.stat = record.stat;
  content.physical = record.is_physical();
  content.origin = record.origin;
  content.fetched_ns = record.fetched_ns;
  content.verified_ns = record.verified_ns.load(std::memory_order_relaxed);
  content.views = record.views.load(std::memory_order_relaxed);
  auto pin = ram_.publish(*reservation, content);
  if (!pin) return pin;
  // As in a fetch. The index has forgotten the old record, so a later change could not mark it: those who have it open turn
  // to the origin from now on.
  const bool confirmed = !record.is_stale() && watch.is_unchanged() && ram_.confirm(std::move(*reservation), *pin);
  ram_.mark_record_stale(record);
  if (!confirmed) {
    ram_.mark_record_stale(**pin);
    return base::fail(ESTALE);
  }
  return pin;
}

void FileCache::content_changed(std::string_view key, const FileStat* stat) {
  if (!key.empty()) region_->header().name_changes.fetch_add(1, std::memory_order_seq_cst);
  // The epoch first: a fetch that has read the old bytes and publishes them now sees that it must not.
  if (stat != nullptr) writer_stripe_of(*region_, *stat).epoch.fetch_add(1, std::memory_order_seq_cst);
  std::size_t marked = key.empty() ? 0 : ram_.mark_stale(key);
  if (stat != nullptr) marked += ram_.mark_stale_inode(*stat);
  stats().count(Counter::stale_marked, marked);
  if (disk_ != nullptr) disk_->content_changed(key, stat);
}

void FileCache::tree_changed(std::string_view directory) {
  region_->header().name_changes.fetch_add(1, std::memory_order_seq_cst);
  if (!is_empty()) stats().count(Counter::stale_marked, ram_.mark_stale_tree(directory));
  if (disk_ != nullptr) disk_->tree_changed();
}

void FileCache::writing_begins(std::string_view key, const FileStat& stat) {
  cube::cache::writing_begins(*region_, stat);
  content_changed(key, &stat);
}

void FileCache::writing_is_shared(const FileStat& stat, Sharing how) { cube::cache::writing_is_shared(*region_, stat, how); }

void FileCache::child_writes(std::string_view key, const FileStat& stat) {
  // A program that starts a thousand children is counted once.
  if (!cube::cache::is_writing_shared(*region_, stat)) cube::cache::writing_begins(*region_, stat);
  cube::cache::writing_is_shared(*region_, stat);
  content_changed(key, &stat);
}

void FileCache::writing_ends(const FileStat& stat) {
  content_changed({}, &stat);
  cube::cache::writing_ends(*region_, stat);
}

bool FileCache::prepare_room() {
  // One is filled in by each process that fetches; the prefetcher alone fills some of them in a turn.
  constexpr std::uint32_t k_ahead = 3;
  if (ram_.is_full()) return false;
  const auto made = prepare_segment(*region_, k_ahead);
  return made && *made;
}

void FileCache::forget_fills() { Fill::forget_all(); }

void FileCache::detach() {
  Fill::give_up_all();
  ram_.release_lease();
  region_->detach();
}

void FileCache::abandon() {
  if (disk_ != nullptr) disk_->abandon();
  ram_.abandon();
  region_->unmap();
  FetchScope::forget();
}

}  // namespace cube::cache
